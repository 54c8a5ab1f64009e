"""How sure a score is: the bootstrap over examples.

Efron 1979; of two models on the same examples: Berg-Kirkpatrick et al. 2012.

As many examples are drawn again, some twice, some never, and scored anew; where the middle 95 % of
such scores lie is the interval. Examples are taken to be independent: sentences for tags, questions
for answers.  r resamples, n examples.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import in_range
from cloze.errors import InputError

Floats: TypeAlias = NDArray[np.float64]
Chosen: TypeAlias = NDArray[np.int64]
# A score of the examples with these numbers; or a value for each example, if their mean is meant,
# which many resamples at once are quick to have.
Metric: TypeAlias = Callable[[Chosen], float] | Floats

RESAMPLES = 1000
LEVEL = 0.95
_ROOM = 4_000_000  # drawn numbers held at once


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A score and where it may as well have come out."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True, kw_only=True)
class Difference(Interval):
    """A's score less B's on the same examples."""

    p: float  # two-sided: twice the share of resamples on the rarer side of no difference


def bootstrap_interval(
    metric: Metric,
    count: int,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """The percentile interval of a score over `count` examples.

    A resample whose score is NaN, as that of a kind of example it has none of, is left out.
    """
    drawn = _resampled([metric], count, rng, resamples)[0]
    low, high = _middle(drawn)
    return Interval(value=_whole(metric, count), low=low, high=high)


def bootstrap_difference(
    a: Metric,
    b: Metric,
    count: int,
    *,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Difference:
    """Whether A is better than B, both scored on the same draws of the same examples.

    Paired, because what is hard for one is hard for the other: the difference is far surer than
    two intervals side by side suggest.

    p = 2·(k + 1)/(n + 1), at most 1, with k of n resamples on the rarer side of no difference: the
    examples as they are count as one draw more, so that p is never 0 (Davison and Hinkley 1997,
    §4.2).
    """
    ours, theirs = _resampled([a, b], count, rng, resamples)
    gaps = ours - theirs
    low, high = _middle(gaps)
    real = gaps[~np.isnan(gaps)]
    return Difference(
        value=_whole(a, count) - _whole(b, count),
        low=low,
        high=high,
        # a resample without a difference speaks for both sides
        p=min(1.0, 2 * (int(min((real <= 0).sum(), (real >= 0).sum())) + 1) / (len(real) + 1)),
    )


def _resampled(
    metrics: list[Metric], count: int, rng: np.random.Generator, resamples: int
) -> list[Floats]:
    """The scores of every resample (r), each metric's on the same ones."""
    in_range("examples", count, 1, 1 << 40)
    in_range("resamples", resamples, 1, 10_000_000)
    for metric in metrics:
        if isinstance(metric, np.ndarray) and len(metric) != count:
            raise InputError(
                f"there are {len(metric):,} values for {count:,} examples",
                fix="give one value for each example",
            )
    parts = [
        [_scored(metric, draws) for metric in metrics] for draws in _draws(count, rng, resamples)
    ]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _draws(count: int, rng: np.random.Generator, resamples: int) -> Iterator[Chosen]:
    """Numbers of examples (r n), as many rows at once as there is room for."""
    rows = max(_ROOM // count, 1)
    for done in range(0, resamples, rows):
        yield rng.integers(0, count, (min(rows, resamples - done), count))


def _scored(metric: Metric, draws: Chosen) -> Floats:
    if isinstance(metric, np.ndarray):
        return metric[draws].mean(1, dtype=np.float64)
    return np.array([metric(chosen) for chosen in draws], np.float64)


def _whole(metric: Metric, count: int) -> float:
    return float(_scored(metric, np.arange(count)[None])[0])


def _middle(scores: Floats) -> tuple[float, float]:
    """Where LEVEL of the scores lie."""
    real = scores[~np.isnan(scores)]
    if not len(real):
        raise InputError("the score is NaN in every resample", fix="score more examples")
    low, high = np.quantile(real, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
