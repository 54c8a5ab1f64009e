"""What search and sampling share: the interface of a decoder, and the hypotheses they return."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

S = TypeVar("S")


class IncrementalDecoder(Protocol[S]):
    """A model that generates one token after another; S is its state, such as a KV cache.

    A state has rows: one for each sentence at first, later one for each hypothesis.
    """

    def step(self, tokens: Tensor, state: S, /) -> tuple[Tensor, S]:
        """Log-probabilities of the next token (b v) after one more token of each row (b)."""
        ...

    def reorder(self, state: S, indices: Tensor, /) -> S:
        """The state of the rows at `indices`; a row may occur once, several times or never."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A generated sequence."""

    tokens: tuple[int, ...]  # without bos and eos
    score: float  # the log-probability divided by the length normalization, by which beams rank
    log_probability: float  # of the tokens, and of eos if it was generated
    finished: bool  # False: it reached the maximum length without eos


def average(length: int, alpha: float) -> float:
    """length^α; with α = 1 the score is the mean over the tokens."""
    return float(length**alpha)


def wu(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α.  Wu et al. 2016, eq. 14."""
    return float(((5 + length) / 6) ** alpha)


LENGTH_NORMALIZATIONS: dict[str, Callable[[int, float], float]] = {"wu": wu, "average": average}
"""What log-probabilities are divided by, so that short hypotheses have no advantage."""
