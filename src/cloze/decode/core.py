"""What search and sampling share: the interface of a decoder, and the hypotheses they return."""

from collections.abc import Sequence
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


class PromptDecoder(IncrementalDecoder[S], Protocol[S]):
    """A language model as a decoder; prompts of different lengths are decoded together."""

    def start(self, prompts: Sequence[Sequence[int]], /) -> tuple[Tensor, S]:
        """The last token of each prompt (b), and the state after the tokens before it.

        `step(*start(prompts))` gives the log-probabilities of the token after each prompt.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A generated sequence."""

    tokens: tuple[int, ...]  # without bos and eos
    score: float  # the log-probability divided by the length normalization, by which beams rank
    log_probability: float  # of the tokens, and of eos if it was generated
    finished: bool  # False: it reached the maximum length without eos
