"""Metrics of several labels per example, against scikit-learn and by hand."""

import numpy as np
import pytest

from cloze.metrics.baselines import compute_baseline, describe_failure
from cloze.metrics.multi_label import (
    RankedLabels,
    find_label_thresholds,
    make_label_matrix,
    score_label_matrix,
)
from cloze.metrics.scorer import make_scorer

LABELS = ("a", "b", "c", "d", "never")


@pytest.fixture(scope="module")
def drawn():
    """Labels, probabilities with ties, and predictions at 0.5; one label never occurs."""
    rng = np.random.default_rng(0)
    gold = rng.random((60, 5)) < [0.6, 0.3, 0.1, 0.05, 0]
    gold[0], gold[1] = True, False
    gold[:, 4] = False
    probabilities = np.round(np.clip(gold * 0.3 + rng.random((60, 5)) * 0.7, 0, 1), 1)
    probabilities[1] = 0.1
    return gold, probabilities, probabilities >= 0.5


def names(matrix):
    return [tuple(np.array(LABELS)[row]) for row in matrix]


def test_scores_are_those_of_scikit_learn(drawn):
    metrics = pytest.importorskip("sklearn.metrics")
    gold, probabilities, predicted = drawn
    found = make_scorer(
        "multi_label", names(gold), names(predicted), labels=LABELS, probabilities=probabilities
    ).scores
    assert (~gold.any(1) & ~predicted.any(1)).any()  # a text without labels
    seen = gold.any(0) | predicted.any(0)
    options = {"zero_division": 0}
    assert found["f1_micro"] == pytest.approx(metrics.f1_score(gold, predicted, average="micro"))
    assert found["f1_macro"] == pytest.approx(
        metrics.f1_score(gold[:, seen], predicted[:, seen], average="macro", **options)
    )
    assert found["f1_samples"] == pytest.approx(
        metrics.f1_score(gold, predicted, average="samples", zero_division=1)
    )
    assert found["subset_accuracy"] == pytest.approx(metrics.accuracy_score(gold, predicted))
    some = gold.any(0)
    assert found["mean_average_precision"] == pytest.approx(
        metrics.average_precision_score(gold[:, some], probabilities[:, some], average="macro")
    )
    each = metrics.precision_recall_fscore_support(gold, predicted, **options)
    for number, one in enumerate(score_label_matrix(gold, predicted)):
        want = [column[number] for column in each]
        assert [one.precision, one.recall, one.f1, one.support] == pytest.approx(want)


def test_a_subset_is_scored_as_its_examples_alone(drawn):
    gold, probabilities, predicted = drawn
    both = names(gold), names(predicted)
    scorer = make_scorer("multi_label", *both, labels=LABELS, probabilities=probabilities)
    chosen = np.array([3, 3, 0, 41, 7, 7, 7])
    alone = make_scorer(
        "multi_label",
        *([side[n] for n in chosen] for side in both),
        labels=LABELS,
        probabilities=probabilities[chosen],
    )
    assert scorer.score_subset(chosen) == pytest.approx(alone.scores)
    assert np.isnan(RankedLabels(gold, probabilities).average_precisions(chosen)[4])


def test_each_threshold_has_the_highest_f1(drawn):
    gold, probabilities, _ = drawn
    thresholds = find_label_thresholds(gold, probabilities)
    assert thresholds[4] == 0.5  # there is nothing to choose it by
    tuned = score_label_matrix(gold, probabilities >= thresholds)
    assert [one.support >= 10 for one in tuned] == [True, True, False, False, False]
    for number, one in enumerate(tuned[:2]):
        tried = [
            score_label_matrix(gold, probabilities >= cut)[number].f1
            for cut in np.linspace(0, 1, 101)
        ]
        assert one.f1 == pytest.approx(max(tried))
    # labels with few examples share the threshold that is best for both together
    assert thresholds[2] == thresholds[3]
    rare, chances = gold[:, 2:4].ravel()[:, None], probabilities[:, 2:4].ravel()[:, None]
    (best,) = score_label_matrix(rare, chances >= thresholds[2])
    assert best.f1 == pytest.approx(
        max(score_label_matrix(rare, chances >= cut)[0].f1 for cut in np.linspace(0, 1, 101))
    )
    # a threshold of 0.5 stays if none is better
    perfect = np.where(gold, 0.9, 0.1)
    assert find_label_thresholds(gold, perfect) == [0.5] * 5


def test_the_majority_baseline_is_the_best_constant_prediction():
    gold = [("a",), ("a", "b"), ("a", "b"), ("c",), ()]
    labels = ("a", "b", "c")
    tried = [labels[:count] for count in range(4)]
    best = max(
        make_scorer("multi_label", gold, [one] * 5, labels=labels).scores["f1_micro"]
        for one in tried
    )
    assert compute_baseline("multi_label", gold) == {"majority_baseline": pytest.approx(best)}
    assert compute_baseline("multi_label", [(), ()]) == {"majority_baseline": 0.0}
    scores = {"f1_micro": best, **compute_baseline("multi_label", gold)}
    assert "majority baseline" in describe_failure(scores)
    assert describe_failure({**scores, "f1_micro": 0.9}) is None
    matrix = make_label_matrix(gold, labels)
    assert matrix.sum(0).tolist() == [3, 2, 1]
