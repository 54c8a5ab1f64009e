"""Metrics of numeric predictions: Pearson and Spearman correlation, mean squared error.

A correlation with constant values is undefined: NaN in scipy and in the scripts of GLUE. Here it is
0, like the Matthews correlation, so that one such task does not make the mean over tasks NaN.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError
from cloze.metrics.labels import check_paired

Floats: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = Sequence[float] | NDArray[np.floating]


def pearson(gold: Numbers, predicted: Numbers) -> float:
    """Pearson's r = Σ(x − x̄)(y − ȳ) / √(Σ(x − x̄)² · Σ(y − ȳ)²)."""
    return _compute_correlation(*_check_numbers(gold, predicted))


def spearman(gold: Numbers, predicted: Numbers) -> float:
    """Spearman's ρ: Pearson's r of the ranks; equal values have the mean of their ranks."""
    return _compute_correlation(*map(compute_ranks, _check_numbers(gold, predicted)))


def mean_squared_error(gold: Numbers, predicted: Numbers) -> float:
    """Mean of (x − y)²."""
    x, y = _check_numbers(gold, predicted)
    return float(np.square(x - y).mean())


def compute_ranks(values: Floats) -> Floats:
    """Ranks from 1 for the smallest value; equal values have the mean of their ranks."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()  # the highest rank of each group of equal values
    return (last - (counts - 1) / 2)[groups]


def _compute_correlation(x: Floats, y: Floats) -> float:
    if x.min() == x.max() or y.min() == y.max():
        return 0.0
    x, y = _center(x), _center(y)
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


def _center(values: Floats) -> Floats:
    """Subtract the mean, and scale so that squares neither overflow nor underflow."""
    scaled = values / np.abs(values).max()
    centred = scaled - scaled.mean()
    return centred / np.abs(centred).max()


def _check_numbers(gold: Numbers, predicted: Numbers) -> tuple[Floats, Floats]:
    check_paired(gold, predicted)
    x, y = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("a value to score is NaN or infinite", fix="remove or correct it")
    return x, y
