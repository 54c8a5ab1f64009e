"""What a prediction that ignores the text reaches, and scores that are no better."""

import pytest

from cloze.metrics.baselines import compute_baseline, describe_failure
from helpers import check_mentions


@pytest.mark.parametrize(
    ("kind", "gold", "options", "wanted"),
    [
        ("classify", ["a", "b", "b", "c"], (), {"majority_baseline": 0.5}),
        ("tag", [["O", "O", "B-X"], ["O"]], (), {"majority_baseline": 0.75}),
        ("regression", [1.0, 3.0], (), {"mean_baseline": 1.0}),
        ("choose", [0, 2], (2, 4), {"chance_baseline": 0.375}),
        ("answer", [["x"], [], [], ["y"]], (), {"no_answer_baseline": 0.5}),
        ("answer", [["x"], ["y"]], (), {}),
        ("similarity", [1.0, 2.0], (), {}),
        ("classify", [], (), {}),
    ],
)
def test_each_task_has_its_own(kind, gold, options, wanted):
    assert compute_baseline(kind, gold, options) == wanted


@pytest.mark.parametrize(
    ("scores", "names"),
    [
        ({"accuracy": 0.5, "majority_baseline": 0.5}, ("accuracy", "50.0", "majority baseline")),
        ({"accuracy": 0.2, "chance_baseline": 0.25}, ("accuracy", "20.0", "chance", "25.0")),
        ({"mean_squared_error": 2, "mean_baseline": 1.5}, ("mean squared error", "2.0000")),
        ({"f1": 0.4, "no_answer_baseline": 0.5}, ("F1", "40.0", "no-answer baseline")),
        ({"perplexity": 99.0, "unigram_perplexity": 90.0}, ("perplexity", "99", "90")),
        ({"lm_accuracy": 0.04, "unigram_baseline": 0.05}, ("LM accuracy", "unigram baseline")),
    ],
)
def test_a_score_that_is_no_better_is_called_that(scores, names):
    check_mentions(describe_failure(scores).replace("\xa0", " "), *names)


@pytest.mark.parametrize(
    "scores",
    [
        {"accuracy": 0.51, "majority_baseline": 0.5},
        {"mean_squared_error": 1.0, "mean_baseline": 1.5},
        {"accuracy": 0.1},
        {"bleu": 0.0},
    ],
)
def test_a_better_score_is_not(scores):
    assert describe_failure(scores) is None
