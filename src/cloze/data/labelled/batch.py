"""Encoded examples of labelled data, and batches of them.

n tokens, b sequences, m positions of the head, g groups.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import IGNORE_INDEX, Ints, split_evenly

LENGTH_MULTIPLE = 16  # of padded rows, so that few shapes occur


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedExample:
    """A sequence and the positions that a task head reads.

    `positions` are token indices: [CLS] for a label or a choice, the first token of every word for
    tags, all tokens for answers. `targets` are a class or a number for each position; for answers,
    the positions of the first and the last token, (0, 0) if there is no answer.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    positions: Sequence[int] = (0,)
    targets: Sequence[int | float] = ()  # empty at inference
    example: int = 0  # index of the example it was made from
    # the same pair in the other order, or the second text of a pair, if a head reads both
    other: "EncodedExample | None" = None
    spellings: Sequence[str] = ()  # the words at the positions, if a head has embeddings of words

    @property
    def sequences(self) -> "tuple[EncodedExample, ...]":
        """This sequence, and the other one that belongs to it if there is one."""
        return (self,) if self.other is None else (self, self.other)


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """Packed sequences; the sequences of a group share one target."""

    name: str  # of the loss
    input_ids: Ints  # n
    token_type_ids: Ints  # n
    lengths: Ints  # b
    positions: Ints  # m, in the packed sequences
    position_counts: Ints  # b, positions of each sequence
    group_sizes: Ints  # g, sequences per group: options of a question, orders of a pair, else 1
    targets: NDArray[Any]  # as the objective expects them
    target_counts: Ints  # g, targets per group
    sample_ids: Ints  # b
    has_lm: bool = False  # the next tokens are targets, too

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.input_ids)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of targets of each loss: for `lm`, the tokens but the first of each sequence."""
        lm = {"lm": self.size - len(self)} if self.has_lm else {}
        return {self.name: len(self.targets), **lm}

    @property
    def starts(self) -> Ints:
        """Start of each sequence, and n."""
        return np.concatenate([[0], self.lengths.cumsum()])  # b + 1

    def positions_by_sequence(self, width: int | None = None) -> Ints:
        """Indices of the positions of each sequence, padded with −1 (b t)."""
        return _number_rows(self.position_counts, width)

    def sequences_by_group(self) -> Ints:
        """Indices of the sequences of each group, padded with −1 (g k)."""
        return _number_rows(self.group_sizes)

    @property
    def padded_length(self) -> int:
        """Number of columns of padded arrays."""
        return -(-int(self.lengths.max()) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Padded arrays with few distinct shapes: row lengths are multiples of 16.

        `positions` are indices of the b·t padded tokens. If sequences have several positions, there
        are b·t of them, the additional ones with the target IGNORE_INDEX.
        """
        longest = self.padded_length
        is_token = np.arange(longest) < self.lengths[:, None]  # b t
        ids, types = np.zeros(is_token.shape, np.int64), np.zeros(is_token.shape, np.int64)
        ids[is_token], types[is_token] = self.input_ids, self.token_type_ids
        positions, targets = np.flatnonzero(is_token)[self.positions], self.targets
        if (self.position_counts != 1).any():
            positions = _pad(positions, is_token.size, 0)
            # if every position has a target
            if np.array_equal(self.target_counts, self.position_counts):
                targets = _pad(targets, is_token.size, IGNORE_INDEX)
        return {
            "ids": ids,
            "attention_mask": is_token,
            "token_type_ids": types,
            "positions": positions,
            "positions_by_sequence": self.positions_by_sequence(longest),
            "sequences_by_group": self.sequences_by_group(),
            "targets": targets,
        }

    def split(self, parts: int) -> list[Self]:
        """Split into up to `parts` batches with about the same number of tokens."""
        borders = self.starts[np.concatenate([[0], self.group_sizes.cumsum()])]  # g + 1
        return [self._part(*bounds) for bounds in split_evenly(np.diff(borders), parts)]

    def _part(self, first: int, last: int) -> Self:
        sequences = slice(int(self.group_sizes[:first].sum()), int(self.group_sizes[:last].sum()))
        begin, end = (int(self.starts[n]) for n in (sequences.start, sequences.stop))
        positions = slice(
            int(self.position_counts[: sequences.start].sum()),
            int(self.position_counts[: sequences.stop].sum()),
        )
        targets = slice(int(self.target_counts[:first].sum()), int(self.target_counts[:last].sum()))
        return replace(
            self,
            input_ids=self.input_ids[begin:end],
            token_type_ids=self.token_type_ids[begin:end],
            lengths=self.lengths[sequences],
            positions=self.positions[positions] - begin,
            position_counts=self.position_counts[sequences],
            group_sizes=self.group_sizes[first:last],
            targets=self.targets[targets],
            target_counts=self.target_counts[first:last],
            sample_ids=self.sample_ids[sequences],
        )


def make_compact(values: Sequence[int]) -> Sequence[int]:
    """The same numbers in 4 bytes each, for the many windows of a long text."""
    return array("i", values)


def collate_examples(
    name: str, groups: Sequence[Sequence[EncodedExample]], *, has_lm: bool = False
) -> TaskBatch:
    """Make a batch of groups of examples, sorted by length.

    The targets of a group are those of its first example. With `has_lm` the next tokens are
    targets, too.
    """
    ordered = sorted(groups, key=lambda group: [len(example.ids) for example in group])
    examples = [example for group in ordered for example in group]
    lengths = np.array([len(example.ids) for example in examples], np.int64)
    starts = np.concatenate([[0], lengths.cumsum()])
    pairs = zip(examples, starts[:-1], strict=True)
    targets = [group[0].targets for group in ordered]
    return TaskBatch(
        name=name,
        input_ids=_concatenate([example.ids for example in examples]),
        token_type_ids=_concatenate([example.type_ids for example in examples]),
        lengths=lengths,
        positions=_concatenate([np.asarray(example.positions) + start for example, start in pairs]),
        position_counts=np.array([len(example.positions) for example in examples], np.int64),
        group_sizes=np.array([len(group) for group in ordered], np.int64),
        targets=np.array([target for row in targets for target in row]),
        target_counts=np.array([len(row) for row in targets], np.int64),
        sample_ids=np.array([example.example for example in examples], np.int64),
        has_lm=has_lm,
    )


def _concatenate(rows: Sequence[Sequence[int] | Ints]) -> Ints:
    return np.concatenate([np.asarray(row, np.int64) for row in rows])


def _number_rows(sizes: Ints, width: int | None = None) -> Ints:
    """0, 1, 2 … in rows of these sizes, padded with −1."""
    is_used = np.arange(width or int(sizes.max())) < sizes[:, None]
    numbers = np.full(is_used.shape, -1)
    numbers[is_used] = np.arange(sizes.sum())
    return numbers


def _pad(array: NDArray[Any], size: int, value: int) -> NDArray[Any]:
    return np.concatenate([array, np.full(size - len(array), value, array.dtype)])
