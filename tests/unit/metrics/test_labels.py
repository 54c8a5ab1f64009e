"""Metrics of labels, by hand; tests/parity/test_metrics.py compares with scikit-learn."""

import math

import numpy as np
import pytest

from cloze.errors import ConfigError, InputError
from cloze.metrics.labels import (
    LabelScores,
    check_paired,
    compute_calibration,
    confusion_matrix,
    macro_f1,
    matthews_correlation,
    score_labels,
    sum_scores,
)
from helpers import raises

GOLD = ["cat", "cat", "cat", "dog", "dog", "eel"]
PREDICTIONS = ["cat", "cat", "dog", "dog", "cat", "dog"]


def test_rows_are_gold_labels_and_columns_predictions():
    matrix = confusion_matrix(GOLD, PREDICTIONS, ["eel", "dog", "cat"])
    assert matrix.tolist() == [[0, 1, 0], [0, 1, 1], [0, 1, 2]]
    assert confusion_matrix(GOLD, PREDICTIONS).tolist() == [[2, 1, 0], [1, 1, 0], [0, 1, 0]]


def test_a_label_that_is_never_predicted_scores_zero():
    assert score_labels(GOLD, PREDICTIONS)["eel"] == LabelScores(
        true_positives=0, predicted=0, support=1
    )
    assert score_labels(GOLD, PREDICTIONS)["eel"].precision == 0
    assert score_labels(GOLD, PREDICTIONS)["cat"].f1 == pytest.approx(2 / 3)
    assert macro_f1(score_labels(GOLD, PREDICTIONS).values()) == pytest.approx(
        (2 / 3 + 2 / 5 + 0) / 3
    )


def test_matthews_by_its_formula():
    gold, predictions = [1] * 6 + [0] * 4, [1] * 5 + [0] + [1] + [0] * 3
    tp, tn, fp, fn = 5, 3, 1, 1
    root = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert matthews_correlation(confusion_matrix(gold, predictions)) == pytest.approx(
        (tp * tn - fp * fn) / root
    )
    assert matthews_correlation(confusion_matrix(gold, gold)) == 1
    assert matthews_correlation(confusion_matrix(gold, [1 - one for one in gold])) == -1
    assert matthews_correlation(confusion_matrix(gold, [1] * 10)) == 0


def test_many_examples_do_not_overflow():
    matrix = np.array([[3_000_000_000, 1], [1, 3_000_000_000]])
    assert matthews_correlation(matrix) == pytest.approx(1)


def test_sums_of_scores():
    parts = [
        LabelScores(true_positives=1, predicted=2, support=4),
        LabelScores(true_positives=3, predicted=3, support=3),
    ]
    assert sum_scores(parts) == LabelScores(true_positives=4, predicted=5, support=7)
    assert macro_f1(parts) == pytest.approx((1 / 3 + 1) / 2)
    assert macro_f1([]) == 0


def test_calibration_by_hand():
    made = compute_calibration([0.0, 0.1, 0.15, 0.95, 1.0], [False, False, True, True, True])
    first, second, last = made.bins[0], made.bins[1], made.bins[-1]
    assert (first.count, first.confidence, first.accuracy) == (2, 0.05, 0.0)  # 0.1 is in the first
    assert (second.count, second.confidence, second.accuracy) == (1, 0.15, 1.0)
    assert (last.low, last.high, last.count, last.accuracy) == (0.9, 1.0, 2, 1.0)
    assert (made.bins[4].count, made.bins[4].accuracy) == (0, None)
    assert made.count == 5
    assert made.error == pytest.approx((2 * 0.05 + 0.85 + 2 * 0.025) / 5)


def test_perfect_calibration_has_no_error():
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.5, 1, 100_000)
    assert compute_calibration(sure, rng.random(100_000) < sure, bins=15).error < 0.01
    assert compute_calibration(sure, np.ones(100_000, bool)).error == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_confidence_is_a_probability(bad):
    with raises(InputError, "between 0 and 1", fix="probabilities"):
        compute_calibration([0.5, bad], [True, True])
    with raises(ConfigError, "bins", "0"):
        compute_calibration([0.5], [True], bins=0)


def test_inputs_that_cannot_be_scored():
    with raises(InputError, "2 examples", "1 prediction"):
        check_paired(["a", "b"], ["a"])
    with raises(InputError, "examples"):
        check_paired([], [])
    with raises(InputError, "eel"):
        confusion_matrix(GOLD, PREDICTIONS, ["cat", "dog"])
