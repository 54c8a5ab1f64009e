"""What search and sampling share: the interface of a decoder, and the hypotheses they return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from torch import Tensor

S = TypeVar("S")
FinishReason: TypeAlias = Literal["end", "length", "stop"]
"""Why a sequence ended: eos (or no token is allowed), the maximum length, or a stop string."""
ShouldStop: TypeAlias = Callable[[int, Sequence[int]], bool]
"""Whether a row, given by its index and its tokens so far, ends here."""


class IncrementalDecoder(Protocol[S]):
    """A model that generates one token after another; S is its state, such as a KV cache.

    A state has rows: one for each sentence at first, later one for each hypothesis. It may have
    `log_normalizer` (b 1), so that log-probabilities plus it are the logits, which the repetition
    penalty changes; without it the log-probabilities are the logits.
    """

    def step(self, tokens: Tensor, state: S, /) -> tuple[Tensor, S]:
        """Log-probabilities of the next token (b v) after one more token of each row (b)."""
        ...

    def reorder(self, state: S, indices: Tensor, /) -> S:
        """The state of the rows at `indices`; a row may occur once, several times or never."""
        ...


class MergingDecoder(IncrementalDecoder[S], Protocol[S]):
    """A decoder that other rows may join between two steps (`cloze.decode.continuous`)."""

    def merge(self, states: Sequence[S], /) -> S:
        """One state with the rows of several, in their order."""
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
    finish_reason: FinishReason

    @property
    def finished(self) -> bool:
        """Whether it ended before the maximum length."""
        return self.finish_reason != "length"
