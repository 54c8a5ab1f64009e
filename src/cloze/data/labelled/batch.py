"""Sequences, where a head reads them, and what it should find there; and batches of them.

n tokens, b sequences, m places, g groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import IGNORE_INDEX, Ints

LENGTH_MULTIPLE = 16  # lengths of padded rows


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedExample:
    """One sequence as a head reads it.

    `places` are tokens of the sequence: [CLS] alone for a label or a choice, the first piece of
    every word for tags, all tokens for answers. `targets`: a class or a number for each place; for
    answers the places of the first and the last token, (0, 0) where the context does not say.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    positions: Sequence[int] = (0,)
    targets: Sequence[int | float] = ()  # empty where nothing is learned
    example: int = 0  # the number of the example it was made from


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """A flat row of sequences, `lengths` parting them; a group of them shares one target."""

    name: str  # of the loss
    input_ids: Ints  # n
    token_type_ids: Ints  # n
    lengths: Ints  # b
    positions: Ints  # m, in the flat row
    position_counts: Ints  # b, places of each sequence
    group_sizes: Ints  # g, sequences of each group: the options of a question; else all are 1
    targets: NDArray[Any]  # what the objective makes of them
    target_counts: Ints  # g, targets of each group
    sample_ids: Ints  # b

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many targets the loss has."""
        return {self.name: len(self.targets)}

    @property
    def starts(self) -> Ints:
        """Where each sequence begins, and n."""
        return np.concatenate([[0], self.lengths.cumsum()])  # b + 1

    def positions_by_sequence(self, width: int | None = None) -> Ints:
        """The numbers of the places of each sequence, −1 where it has fewer than another (b t)."""
        return _numbered(self.position_counts, width)

    def sequences_by_group(self) -> Ints:
        """The numbers of the sequences of each group, −1 where it has fewer (g k)."""
        return _numbered(self.group_sizes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same in rectangles, padded so that few shapes occur: rows to a multiple of 16.

        `places` are among the b·t of the rows. Where sequences have several there are b·t of them,
        those too many with the target NO_LABEL.
        """
        longest = -(-int(self.lengths.max()) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        real = np.arange(longest) < self.lengths[:, None]  # b t
        ids, types = np.zeros(real.shape, np.int64), np.zeros(real.shape, np.int64)
        ids[real], types[real] = self.input_ids, self.token_type_ids
        places, targets = np.flatnonzero(real)[self.positions], self.targets
        if (self.position_counts != 1).any():
            places = _filled(places, real.size, 0)
            if np.array_equal(self.target_counts, self.position_counts):  # a target at every place
                targets = _filled(targets, real.size, IGNORE_INDEX)
        return {
            "ids": ids,
            "attention_mask": real,
            "token_type_ids": types,
            "positions": places,
            "positions_by_sequence": self.positions_by_sequence(longest),
            "sequences_by_group": self.sequences_by_group(),
            "targets": targets,
        }

    def split(self, parts: int) -> list[Self]:
        """The same groups in up to `parts` batches of about as many tokens each."""
        borders = self.starts[np.concatenate([[0], self.group_sizes.cumsum()])]  # g + 1
        ideal = np.arange(1, parts) * len(self.input_ids) / parts
        cuts = np.unique([0, *np.searchsorted(borders, ideal), len(self.group_sizes)]).tolist()
        return [self._part(first, last) for first, last in pairwise(cuts)]

    def _part(self, first: int, last: int) -> Self:
        sequences = slice(int(self.group_sizes[:first].sum()), int(self.group_sizes[:last].sum()))
        begin, end = (int(self.starts[n]) for n in (sequences.start, sequences.stop))
        read = slice(
            int(self.position_counts[: sequences.start].sum()),
            int(self.position_counts[: sequences.stop].sum()),
        )
        asked = slice(int(self.target_counts[:first].sum()), int(self.target_counts[:last].sum()))
        return replace(
            self,
            input_ids=self.input_ids[begin:end],
            token_type_ids=self.token_type_ids[begin:end],
            lengths=self.lengths[sequences],
            positions=self.positions[read] - begin,
            position_counts=self.position_counts[sequences],
            group_sizes=self.group_sizes[first:last],
            targets=self.targets[asked],
            target_counts=self.target_counts[first:last],
            sample_ids=self.sample_ids[sequences],
        )


def collate_examples(name: str, groups: Sequence[Sequence[EncodedExample]]) -> TaskBatch:
    """Groups of items as one batch; sequences of one length lie together where groups allow.

    The targets of a group are those of its first item, if it has several.
    """
    ordered = sorted(groups, key=lambda group: [len(item.ids) for item in group])
    items = [item for group in ordered for item in group]
    lengths = np.array([len(item.ids) for item in items], np.int64)
    starts = np.concatenate([[0], lengths.cumsum()])
    pairs = zip(items, starts[:-1], strict=True)
    targets = [group[0].targets for group in ordered]
    return TaskBatch(
        name=name,
        input_ids=_flat([item.ids for item in items]),
        token_type_ids=_flat([item.type_ids for item in items]),
        lengths=lengths,
        positions=_flat([np.asarray(item.positions) + start for item, start in pairs]),
        position_counts=np.array([len(item.positions) for item in items], np.int64),
        group_sizes=np.array([len(group) for group in ordered], np.int64),
        targets=np.array([one for row in targets for one in row]),
        target_counts=np.array([len(row) for row in targets], np.int64),
        sample_ids=np.array([item.example for item in items], np.int64),
    )


def _flat(rows: Sequence[Sequence[int] | Ints]) -> Ints:
    return np.concatenate([np.asarray(row, np.int64) for row in rows])


def _numbered(sizes: Ints, width: int | None = None) -> Ints:
    """0, 1, 2 … in rows of these sizes, each filled up with −1."""
    taken = np.arange(width or int(sizes.max())) < sizes[:, None]
    numbers = np.full(taken.shape, -1)
    numbers[taken] = np.arange(sizes.sum())
    return numbers


def _filled(array: NDArray[Any], size: int, value: int) -> NDArray[Any]:
    return np.concatenate([array, np.full(size - len(array), value, array.dtype)])
