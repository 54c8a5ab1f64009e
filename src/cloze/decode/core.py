"""What every search works with: anything that can step, and what it finds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

S = TypeVar("S")


class Stepper(Protocol[S]):
    """A model that says one token after another; S is all it remembers between two.

    A state has rows: sentences at first, then the hypotheses about them.
    """

    def step(self, tokens: Tensor, state: S) -> tuple[Tensor, S]:
        """Log-probabilities of the next token (b v) after one more token of each row (b)."""
        ...

    def reorder(self, state: S, rows: Tensor) -> S:
        """The state of the rows named, each of which may come once, several times or not at all."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One thing that may be said."""

    tokens: tuple[int, ...]  # without bos and eos
    score: float  # the log-probability by the length penalty: what ranks
    log_probability: float  # of the tokens, and of the end where it was reached
    finished: bool  # False: cut off at the limit


def average(length: int, alpha: float) -> float:
    """length^α: with α = 1 the score is the mean over the tokens."""
    return float(length**alpha)


def wu(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α.  Wu et al. 2016, eq. 14."""
    return float(((5 + length) / 6) ** alpha)


LENGTH_NORMALIZATIONS: dict[str, Callable[[int, float], float]] = {"wu": wu, "average": average}
"""What a log-probability is divided by, so that short is not better for being short."""
