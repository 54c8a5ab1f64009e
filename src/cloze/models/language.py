"""What every language model can do: say how likely the next piece is.  v vocabulary."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Logs: TypeAlias = NDArray[np.floating[Any]]  # natural logarithms
T = TypeVar("T")

_BATCH = 1000  # texts at once


class LanguageModel(Protocol):
    """n-gram, NNLM, LSTM or GPT: `suggest`, `generate` and the measures ask for no more.

    Ids are the model's own. A sequence is what is scored whole: a begin symbol, pieces, an end.
    """

    @property
    def words(self) -> Sequence[str]:
        """The piece of every id."""

    @property
    def unknown(self) -> int | None:
        """The id that stands for what the vocabulary lacks, if anything does."""

    @property
    def end(self) -> int | None:
        """The id that ends a text, if one does."""

    def begin(self, text: str) -> list[int]:
        """A text to go on from: the begin symbol and its pieces, without an end."""

    def sequences(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts to be scored, each with its begin and its end."""

    def shown(self, id: int) -> str:
        """A piece as a reader wants to see it."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of pieces."""

    def next_log_probs(self, context: Sequence[int]) -> Logs:
        """Log p(w | context) for every w of the vocabulary: v numbers."""

    def log_probs(self, sequences: Iterable[Sequence[int]]) -> Iterator[Logs]:
        """For each sequence log p of every piece but the first, given those before it.

        A model that reads its sequences as one text goes on from each to the next. They are taken
        a batch at a time, so there may be more of them than the memory holds.
        """


def batches(stream: Iterable[T]) -> Iterator[list[T]]:
    """Texts or sequences, as many as are worth computing at once."""
    left = iter(stream)
    while batch := list(islice(left, _BATCH)):
        yield batch
