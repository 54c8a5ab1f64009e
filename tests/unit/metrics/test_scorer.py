import math
import pickle

import numpy as np
import pytest

from cloze.errors import ConfigError, InputError
from cloze.metrics import labels, regression, spans
from cloze.metrics.scorer import METRICS, compute_scores, main_metric, make_scorer
from helpers import raises

GOLD = {
    "classify": ["yes", "no", "yes", "yes"],
    "regression": [1.0, 2.0, 3.0, 5.0],
    "similarity": [1.0, 2.0, 3.0, 5.0],
    "tag": [["B-PER", "O"], ["O"], ["B-LOC", "I-LOC"], ["O", "O"]],
    "tag, plain": [["NOUN", "VERB"], ["X"], ["NOUN", "NOUN"], ["VERB", "X"]],
    "answer": [["a dog"], [], ["Paris", "in Paris"], []],
    "choose": [0, 2, 1, 1],
}
PREDICTED = {
    "classify": ["yes", "yes", "yes", "no"],
    "regression": [1.5, 1.0, 3.0, 4.0],
    "similarity": [0.2, 0.1, 0.7, 0.6],
    "tag": [["B-PER", "O"], ["B-LOC"], ["B-LOC", "O"], ["O", "O"]],
    "tag, plain": [["NOUN", "NOUN"], ["X"], ["NOUN", "X"], ["VERB", "X"]],
    "answer": ["big dog", "", "in paris!", "five"],
    "choose": [0, 1, 1, 0],
}
KINDS = [kind for kind in METRICS if kind != "multi_label"]  # it has a file of its own


@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_are_those_of_the_table(kind):
    found = compute_scores(kind.partition(",")[0], GOLD[kind], PREDICTED[kind])
    assert tuple(found) == METRICS[kind]
    assert all(type(value) is float for value in found.values())
    kept = pickle.loads(
        pickle.dumps(make_scorer(kind.partition(",")[0], GOLD[kind], PREDICTED[kind]))
    )
    assert kept.scores == pytest.approx(found, nan_ok=True)
    scheme = "plain" if "plain" in kind else None
    assert next(iter(found)) == main_metric(kind.partition(",")[0], scheme=scheme)


def test_scores_of_labels():
    gold, predicted = GOLD["classify"], PREDICTED["classify"]
    assert compute_scores("classify", gold, predicted) == {
        "accuracy": 0.5,
        "f1_macro": pytest.approx((2 / 3 + 0) / 2),
        "f1": pytest.approx(2 / 3),
        "matthews_correlation": pytest.approx(
            labels.matthews_correlation(labels.confusion_matrix(gold, predicted))
        ),
    }
    turned = compute_scores("classify", gold, predicted, labels=["yes", "no"])
    assert turned["f1"] == labels.score_labels(gold, predicted)["no"].f1


def test_only_two_labels_have_a_positive_one():
    assert set(compute_scores("classify", ["a", "b", "c"], ["a", "b", "b"])) == {
        "accuracy",
        "f1_macro",
    }
    assert set(compute_scores("classify", ["a"], ["a"])) == {"accuracy", "f1_macro"}
    three = compute_scores("classify", ["a", "b"], ["a", "a"], labels=["a", "b", "c"])
    assert three["f1_macro"] == pytest.approx((2 / 3 + 0) / 2)  # c does not occur


def test_spans_and_words():
    found = compute_scores("tag", GOLD["tag"], PREDICTED["tag"])
    overall = spans.score_spans(GOLD["tag"], PREDICTED["tag"]).overall
    assert (found["f1"], found["precision"]) == (overall.f1, overall.precision) == (0.4, 1 / 3)
    assert found["accuracy"] == pytest.approx(5 / 7)
    plain = compute_scores("tag", GOLD["tag, plain"], PREDICTED["tag, plain"])
    flat = [[tag for tags in side["tag, plain"] for tag in tags] for side in (GOLD, PREDICTED)]
    assert plain == {
        name: pytest.approx(compute_scores("classify", *flat)[name])
        for name in ("accuracy", "f1_macro")
    }


def test_the_scheme_can_be_given():
    assert main_metric("tag", scheme="plain") == "accuracy"
    assert compute_scores("tag", [["B-A"]], [["B-A"]], scheme="plain") == {
        "accuracy": 1,
        "f1_macro": 1,
    }
    assert compute_scores("tag", [["B-A"]], [["S-A"]], scheme="bmes")["f1"] == 1
    with raises(InputError, "BOI"):
        compute_scores("tag", [["B-A"]], [["B-A"]], scheme="BOI")


def test_questions_with_and_without_answers():
    found = compute_scores("answer", GOLD["answer"], PREDICTED["answer"])
    assert found == {
        "f1": pytest.approx((2 / 3 + 1 + 1 + 0) / 4),
        "exact_match": 0.5,
        "has_answer_f1": pytest.approx((2 / 3 + 1) / 2),
        "has_answer_exact_match": 0.5,
        "no_answer_accuracy": 0.5,
    }
    assert set(compute_scores("answer", [["a b"]], ["b"])) == {"f1", "exact_match"}
    assert compute_scores("answer", [["北京大学"]], ["大学"], chinese=True)["f1"] == pytest.approx(
        2 / 3
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_subset_is_scored_like_a_whole_set(kind):
    """Examples that a bootstrap draws, one of them twice."""
    name = kind.partition(",")[0]
    chosen = [3, 0, 0, 2, 1]
    options = {"labels": ["no", "yes"]} if kind == "classify" else {}
    made = make_scorer(name, GOLD[kind], PREDICTED[kind], **options)
    again = [[side[kind][at] for at in chosen] for side in (GOLD, PREDICTED)]
    assert made.score_subset(np.array(chosen)) == pytest.approx(
        compute_scores(name, *again, **options)
    )
    assert made.metric()(np.array(chosen)) == pytest.approx(compute_scores(name, *again)[made.main])


def test_a_subset_without_unanswerable_questions_has_nan():
    found = make_scorer("answer", GOLD["answer"], PREDICTED["answer"]).score_subset(
        np.array([0, 2])
    )
    assert math.isnan(found["no_answer_accuracy"])
    assert found["has_answer_exact_match"] == 0.5


def test_scores_of_numbers():
    gold, predicted = GOLD["regression"], PREDICTED["regression"]
    assert compute_scores("regression", gold, predicted) == {
        "pearson": regression.pearson(gold, predicted),
        "spearman": regression.spearman(gold, predicted),
        "mean_squared_error": regression.mean_squared_error(gold, predicted),
    }


def test_unknown_names_are_errors():
    with raises(ConfigError, "task", "clasify", fix="classify"):
        compute_scores("clasify", ["a"], ["a"])
    with raises(ConfigError, "task", "tag, plain"):
        main_metric("tag, plain")
    with raises(ConfigError, "score", "f2", fix="f1"):
        make_scorer("tag", GOLD["tag"], PREDICTED["tag"]).metric("f2")
    with raises(InputError, "'b'"):
        compute_scores("classify", ["a", "b"], ["a", "a"], labels=["a"])
    with raises(InputError, "sentence 1", "1", "2"):
        compute_scores("tag", [["X"]], [["X", "Y"]])
    with raises(InputError, "1 example", "2 predictions"):
        compute_scores("choose", [1], [1, 2])
