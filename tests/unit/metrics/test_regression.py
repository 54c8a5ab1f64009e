import math

import pytest

from cloze.errors import InputError
from cloze.metrics.regression import compute_ranks, mean_squared_error, pearson, spearman
from helpers import raises


def test_by_hand():
    gold, predicted = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 5.0]
    assert pearson(gold, predicted) == pytest.approx(5.5 / math.sqrt(5 * 8.75))
    assert spearman(gold, predicted) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert mean_squared_error(gold, predicted) == 0.75


def test_equal_values_have_the_mean_of_their_ranks():
    assert compute_ranks([3.0, 1.0, 3.0, 2.0, 3.0]).tolist() == [4, 1, 4, 2, 4]


def test_constant_predictions_have_correlation_zero():
    for correlation in (pearson, spearman):
        assert correlation([1, 2, 3], [0.1, 0.1, 0.1]) == 0
        assert correlation([5, 5], [1, 2]) == 0
        assert correlation([5], [1]) == 0


def test_scale_does_not_matter():
    for size in (1e-320, 1e-200, 1.0, 1e200, 1e307):
        assert pearson([1, 2, 3], [1 * size, 2 * size, 4 * size]) == pytest.approx(
            0.98198, abs=2e-3
        )


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_is_an_error(bad):
    with raises(InputError, "NaN"):
        spearman([1.0, 2.0], [1.0, bad])
    with raises(InputError, "2 examples", "1 prediction"):
        mean_squared_error([1.0, 2.0], [1.0])
