"""Batches of pairs of texts for contrastive training.

The loss compares every text of a batch with all others, so it is computed from the vectors of the
whole batch. The batch is embedded in parts, and each part knows which vectors it contributes.

n tokens, b texts of a part, v vectors of the whole batch, g rows, k columns: anchor, positive,
negatives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import Ints, split_evenly
from cloze.data.packing import pack_sequences

LOSS_NAME = "embed"
MISSING = -1  # a row has no text in this column
_MIN_TOKENS = 16  # per text, on average, in rows of a fixed shape


@dataclass(frozen=True, kw_only=True, eq=False)
class PairLayout:
    """Which vectors of a batch belong together."""

    columns: Ints  # g k: indices of vectors; MISSING where a row has fewer texts
    texts: Ints  # v: the text of each vector; equal numbers are equal texts
    scores: NDArray[np.float32] | None = None  # g: how similar anchor and positive are

    @classmethod
    def from_rows(cls, rows: Ints, scores: NDArray[np.float32] | None = None) -> "PairLayout":
        """The layout of rows of texts (g k): anchors come first, then positives, then negatives."""
        by_column = rows.T  # k g
        exists = by_column != MISSING
        columns = np.full(by_column.shape, MISSING)
        columns[exists] = np.arange(exists.sum())
        return cls(columns=columns.T, texts=by_column[exists], scores=scores)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.columns)

    @property
    def num_vectors(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class RowShape:
    """A fixed shape of packed rows, so that a GPU can run compiled code for every part."""

    tokens: int
    max_seqlen: int

    @property
    def sequences(self) -> int:
        """The number of sequences that a row may have, without those of padding."""
        return max(self.tokens // _MIN_TOKENS, self.tokens // self.max_seqlen + 1)

    def halve(self) -> "RowShape":
        """The shape of half of the sequences, by tokens."""
        return RowShape(-(-self.tokens // 2) + self.max_seqlen, self.max_seqlen)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairBatch:
    """Packed texts, a part of a batch, and the layout of the whole batch."""

    layout: PairLayout
    input_ids: Ints  # n
    lengths: Ints  # b
    vectors: Ints  # b: the index of each text's vector in the batch; −1: it is not used
    mlm_probability: float = 0.0  # fraction of the tokens that are masked and predicted
    shape: RowShape | None = None  # None: as many tokens as there are

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.lengths)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.input_ids)

    @property
    def sample_ids(self) -> Ints:
        """The texts."""
        return self.layout.texts[self.vectors]

    @property
    def num_vectors(self) -> int:
        """Number of vectors of the whole batch."""
        return self.layout.num_vectors

    @property
    def num_masked(self) -> int:
        """Number of masked tokens."""
        return max(1, round(self.mlm_probability * self.size)) if self.mlm_probability else 0

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of rows whose anchor is here, and of masked tokens."""
        # the first vectors are those of the anchors
        rows = int(((self.vectors >= 0) & (self.vectors < len(self.layout))).sum())
        return {LOSS_NAME: rows, **({"mlm": self.num_masked} if self.mlm_probability else {})}

    def split(self, parts: int) -> list[Self]:
        """Split into up to `parts` parts with about the same number of tokens."""
        shape = self.shape and self.shape.halve()
        return [self._part(*bounds, shape) for bounds in split_evenly(self.lengths, parts)]

    def _part(self, first: int, last: int, shape: RowShape | None) -> Self:
        edges = np.concatenate([[0], self.lengths.cumsum()])
        return replace(
            self,
            input_ids=self.input_ids[edges[first] : edges[last]],
            lengths=self.lengths[first:last],
            vectors=self.vectors[first:last],
            shape=shape,
        )


class EncodedTexts:
    """The token ids of many texts in one array."""

    def __init__(self, sequences: Sequence[Sequence[int]] = ()) -> None:
        self._parts: list[NDArray[np.int32]] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._ids, self._starts = np.empty(0, np.int32), np.zeros(1, np.int64)
        self.extend(sequences)

    def extend(self, sequences: Sequence[Sequence[int]]) -> None:
        """Add texts."""
        if sequences:
            self._parts.append(np.concatenate([np.array(one, np.int32) for one in sequences]))
            self._lengths.append(np.array([len(one) for one in sequences], np.int64))

    def _merge(self) -> None:
        if self._parts:
            self._ids = np.concatenate([self._ids, *self._parts])
            lengths = np.concatenate([np.diff(self._starts), *self._lengths])
            self._starts = np.concatenate([[0], lengths.cumsum()])
            self._parts, self._lengths = [], []

    def __len__(self) -> int:
        self._merge()
        return len(self._starts) - 1

    @property
    def lengths(self) -> Ints:
        """The number of tokens of each text."""
        self._merge()
        return np.diff(self._starts)

    def gather(self, texts: Ints) -> tuple[Ints, Ints]:
        """The packed ids of some texts, and their lengths."""
        self._merge()
        lengths = self._starts[texts + 1] - self._starts[texts]
        ends = lengths.cumsum()
        shift = np.repeat(self._starts[texts] - (ends - lengths), lengths)
        return self._ids[np.arange(ends[-1] if len(ends) else 0) + shift].astype(np.int64), lengths


@dataclass(frozen=True, kw_only=True)
class PartOptions:
    """How a batch is divided into parts."""

    tokens: int  # of a part, at most
    mlm_probability: float = 0.0
    shape: RowShape | None = None


def make_parts(
    layout: PairLayout,
    texts: EncodedTexts,
    options: PartOptions,
    *,
    rank: int = 0,
    world_size: int = 1,
) -> list[PairBatch]:
    """The parts of a batch that one process embeds, of at most `options.tokens` each.

    Without a shape the texts are sorted by length, because attention over packed rows computes
    those of equal length together. With one, parts get texts of all columns, so that their number
    is similar.
    """
    lengths, shape = texts.lengths[layout.texts], options.shape
    if shape is None:
        order = np.argsort(-lengths, kind="stable")
    else:
        rows = layout.columns.ravel()
        order = rows[rows != MISSING]
    mine = order[rank::world_size]
    is_used = len(mine) > 0
    if not is_used:  # there are more processes than texts, and each must run the model
        mine = order[:1]
    capacity = max(options.tokens, int(lengths[mine].max()))
    starts = pack_sequences(lengths[mine], capacity, window=None).starts
    if shape is not None:
        starts = _limit_sequences(starts, shape.sequences)
    parts = []
    for first, last in pairwise(starts.tolist()):
        chosen = mine[first:last]
        ids, sizes = texts.gather(layout.texts[chosen])
        parts.append(
            PairBatch(
                layout=layout,
                input_ids=ids,
                lengths=sizes,
                vectors=chosen if is_used else np.full(len(chosen), -1),
                mlm_probability=options.mlm_probability,
                shape=shape,
            )
        )
    return parts


def _limit_sequences(starts: Ints, most: int) -> Ints:
    """The starts of parts, none with more than `most` sequences."""
    found = [np.arange(first, last, most) for first, last in pairwise(starts.tolist())]
    return np.concatenate([*found, starts[-1:]])
