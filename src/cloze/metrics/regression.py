"""How well numbers were told: correlations and errors.

Where either side is constant a correlation has no value: scipy gives NaN and a warning, and so do
GLUE's own scripts, which ask scipy. Here it is 0, as Matthews' is by convention: who always says
the same knows nothing of the order, and one such task should not make a mean of tasks NaN.
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
    return _correlation(*_both(gold, predicted))


def spearman(gold: Numbers, predicted: Numbers) -> float:
    """Spearman's ρ: Pearson's r of the ranks, where equal numbers share the mean of theirs."""
    return _correlation(*map(compute_ranks, _both(gold, predicted)))


def mean_squared_error(gold: Numbers, predicted: Numbers) -> float:
    """Mean of (x − y)²."""
    x, y = _both(gold, predicted)
    return float(np.square(x - y).mean())


def compute_ranks(values: Floats) -> Floats:
    """1 for the smallest; equal ones get the mean of the ranks they take up."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()  # the highest rank of each group of equals
    return (last - (counts - 1) / 2)[places]


def _correlation(x: Floats, y: Floats) -> float:
    if x.min() == x.max() or y.min() == y.max():
        return 0.0
    x, y = _centred(x), _centred(y)
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


def _centred(values: Floats) -> Floats:
    """Around zero, and of a size whose squares neither overflow nor vanish."""
    scaled = values / np.abs(values).max()
    centred = scaled - scaled.mean()
    return centred / np.abs(centred).max()


def _both(gold: Numbers, predicted: Numbers) -> tuple[Floats, Floats]:
    check_paired(gold, predicted)
    x, y = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("a number to score is NaN or infinite", fix="look for what made it so")
    return x, y
