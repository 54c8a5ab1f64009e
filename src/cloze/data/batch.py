"""Batches of packed sequences, without padding.

n tokens, b sequences, m masked tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

IGNORE_INDEX = -100  # target that cross-entropy ignores


def _make_empty() -> Ints:
    return np.zeros(0, np.int64)


def split_evenly(sizes: Ints, parts: int) -> list[tuple[int, int]]:
    """First and last (exclusive) of up to `parts` parts with about equal sums of sizes.

    No part is empty, and there are at least two unless there is only one size.
    """
    starts = np.concatenate([[0], sizes.cumsum()])
    ideal = np.arange(1, parts) * starts[-1] / parts
    after = np.searchsorted(starts, ideal)
    is_nearer = ideal - starts[after - 1] < starts[after] - ideal
    inner = np.clip(after - is_nearer, 1, max(1, len(sizes) - 1))
    return list(pairwise(np.unique([0, *inner, len(sizes)]).tolist()))


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedBatch:
    """Packed sequences of the given lengths, which do not attend to each other."""

    input_ids: Ints  # n
    token_type_ids: Ints  # n
    lengths: Ints  # b
    word_starts: Bools  # n
    maskable: Bools  # n, False for special tokens
    labels: Ints  # b, of the pair: 0 in order, 1 not; IGNORE_INDEX if there is none
    sample_ids: Ints  # b
    epoch: int  # epoch and sample id identify a sample
    masked_positions: Ints = field(default_factory=_make_empty)  # m
    targets: Ints = field(default_factory=_make_empty)  # m, the original ids

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.input_ids)

    @property
    def starts(self) -> Ints:
        """Start of each sequence, and n."""
        return np.concatenate([[0], self.lengths.cumsum()])  # b + 1

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of targets of each loss."""
        return {"mlm": len(self.masked_positions), "nsp": int((self.labels != IGNORE_INDEX).sum())}

    def with_masks(self, input_ids: Ints, positions: Ints, targets: Ints) -> Self:
        """The same batch with some tokens masked."""
        return replace(self, input_ids=input_ids, masked_positions=positions, targets=targets)

    def split(self, parts: int) -> list[Self]:
        """Split into up to `parts` batches with about the same number of tokens."""
        return [self._part(*bounds) for bounds in split_evenly(self.lengths, parts)]

    def _part(self, first: int, last: int) -> Self:
        begin, end = self.starts[[first, last]].tolist()
        chosen = slice(*np.searchsorted(self.masked_positions, [begin, end]).tolist())
        return replace(
            self,
            input_ids=self.input_ids[begin:end],
            token_type_ids=self.token_type_ids[begin:end],
            lengths=self.lengths[first:last],
            word_starts=self.word_starts[begin:end],
            maskable=self.maskable[begin:end],
            labels=self.labels[first:last],
            sample_ids=self.sample_ids[first:last],
            masked_positions=self.masked_positions[chosen] - begin,
            targets=self.targets[chosen],
        )


def batch_by_tokens(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences, longest first, in batches of at most `batch_tokens` (one at least).

    Neighbours have nearly the same length, so that a packed batch has few runs of equal lengths;
    the longest come first, so that a batch that does not fit into memory fails at once.
    """
    batch: list[int] = []
    remaining = batch_tokens
    for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and lengths[index] > remaining:
            yield batch
            batch, remaining = [], batch_tokens
        batch.append(index)
        remaining -= lengths[index]
    if batch:
        yield batch
