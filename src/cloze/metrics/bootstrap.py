"""Confidence intervals of scores, by the bootstrap over examples.

Efron 1979; for two models on the same examples Berg-Kirkpatrick et al. 2012.

Each resample draws as many examples as there are, with replacement, and is scored; the interval
contains the middle 95 % of these scores. Examples must be independent: sentences for tags,
questions for answers.  r resamples, n examples.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import in_range
from cloze.errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
# A function from the indices of examples to their score; or one value per example, if the score is
# their mean, which is fast for many resamples at once.
Metric: TypeAlias = Callable[[Indices], float] | Floats

RESAMPLES = 1000
CONFIDENCE_LEVEL = 0.95
_MAX_DRAWS = 4_000_000  # indices in memory at once


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A score and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, kw_only=True)
class Difference(Interval):
    """The score of A minus the score of B, on the same examples."""

    p: float  # two-sided p-value: twice the fraction of resamples on the rarer side of zero


def bootstrap_interval(
    metric: Metric,
    count: int,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """The percentile interval of a score over `count` examples.

    Resamples with the score NaN, such as the recall of a label that was not drawn, are left out.
    """
    scores = _score_resamples([metric], count, rng, resamples)[0]
    low, high = _compute_interval(scores)
    return Interval(value=_score_all(metric, count), low=low, high=high)


def bootstrap_difference(
    a: Metric,
    b: Metric,
    count: int,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Difference:
    """The difference of the scores of A and B, which are scored on the same resamples.

    Examples that are hard for A tend to be hard for B, so this paired difference has a narrower
    interval than two separate intervals suggest.

    p = min(1, 2·(k + 1)/(n + 1)), where k of n resamples are on the rarer side of zero: the
    original examples count as one more resample, so that p is never 0 (Davison and Hinkley 1997,
    §4.2).
    """
    scores_a, scores_b = _score_resamples([a, b], count, rng, resamples)
    differences = scores_a - scores_b
    low, high = _compute_interval(differences)
    valid = differences[~np.isnan(differences)]
    return Difference(
        value=_score_all(a, count) - _score_all(b, count),
        low=low,
        high=high,
        # a resample with no difference counts for both sides
        p=min(1.0, 2 * (int(min((valid <= 0).sum(), (valid >= 0).sum())) + 1) / (len(valid) + 1)),
    )


def _score_resamples(
    metrics: list[Metric], count: int, rng: np.random.Generator, resamples: int
) -> list[Floats]:
    """The scores of every resample (r), for each metric, on the same resamples."""
    in_range("examples", count, 1, 1 << 40)
    in_range("resamples", resamples, 1, 10_000_000)
    for metric in metrics:
        if isinstance(metric, np.ndarray) and len(metric) != count:
            raise InputError(
                f"there are {len(metric):,} values for {count:,} examples",
                fix="pass one value for each example",
            )
    parts = [
        [_score_draws(metric, draws) for metric in metrics]
        for draws in _draw_indices(count, rng, resamples)
    ]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _draw_indices(count: int, rng: np.random.Generator, resamples: int) -> Iterator[Indices]:
    """Indices of examples (r n), in chunks of limited size."""
    rows = max(_MAX_DRAWS // count, 1)
    for done in range(0, resamples, rows):
        yield rng.integers(0, count, (min(rows, resamples - done), count))


def _score_draws(metric: Metric, draws: Indices) -> Floats:
    if isinstance(metric, np.ndarray):
        return metric[draws].mean(1, dtype=np.float64)
    return np.array([metric(indices) for indices in draws], np.float64)


def _score_all(metric: Metric, count: int) -> float:
    return float(_score_draws(metric, np.arange(count)[None])[0])


def _compute_interval(scores: Floats) -> tuple[float, float]:
    """The interval that contains the middle CONFIDENCE_LEVEL of the scores."""
    valid = scores[~np.isnan(scores)]
    if not len(valid):
        raise InputError("the score is NaN in every resample", fix="score more examples")
    low, high = np.quantile(valid, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)
