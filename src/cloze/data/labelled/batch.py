"""Sequences, where a head reads them, and what it should find there; and batches of them.

n tokens, b sequences, m places, g groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import NO_LABEL, Ints

ROUND = 16  # lengths of padded rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One sequence as a head reads it.

    `places` are tokens of the sequence: [CLS] alone for a label or a choice, the first piece of
    every word for tags, all tokens for answers. `targets`: a class or a number for each place; for
    answers the places of the first and the last token, (0, 0) where the context does not say.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    places: Sequence[int] = (0,)
    targets: Sequence[int | float] = ()  # empty where nothing is learned
    example: int = 0  # the number of the example it was made from


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """A flat row of sequences, `lengths` parting them; a group of them shares one target."""

    name: str  # of the loss
    input_ids: Ints  # n
    token_type_ids: Ints  # n
    lengths: Ints  # b
    places: Ints  # m, in the flat row
    sizes: Ints  # b, places of each sequence
    groups: Ints  # g, sequences of each group: the options of a question; else all are 1
    targets: NDArray[Any]  # what the objective makes of them
    spread: Ints  # g, targets of each group
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

    def by_sequence(self, width: int | None = None) -> Ints:
        """The numbers of the places of each sequence, −1 where it has fewer than another (b t)."""
        return _numbered(self.sizes, width)

    def by_group(self) -> Ints:
        """The numbers of the sequences of each group, −1 where it has fewer (g k)."""
        return _numbered(self.groups)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same in rectangles, padded so that few shapes occur: rows to a multiple of 16.

        `places` are among the b·t of the rows. Where sequences have several there are b·t of them,
        those too many with the target NO_LABEL.
        """
        longest = -(-int(self.lengths.max()) // ROUND) * ROUND
        real = np.arange(longest) < self.lengths[:, None]  # b t
        ids, types = np.zeros(real.shape, np.int64), np.zeros(real.shape, np.int64)
        ids[real], types[real] = self.input_ids, self.token_type_ids
        places, targets = np.flatnonzero(real)[self.places], self.targets
        if (self.sizes != 1).any():
            places = _filled(places, real.size, 0)
            if np.array_equal(self.spread, self.sizes):  # a target at every place
                targets = _filled(targets, real.size, NO_LABEL)
        return {
            "ids": ids,
            "real": real,
            "types": types,
            "places": places,
            "by_sequence": self.by_sequence(longest),
            "by_group": self.by_group(),
            "targets": targets,
        }

    def split(self, parts: int) -> list[Self]:
        """The same groups in up to `parts` batches of about as many tokens each."""
        borders = self.starts[np.concatenate([[0], self.groups.cumsum()])]  # g + 1
        ideal = np.arange(1, parts) * len(self.input_ids) / parts
        cuts = np.unique([0, *np.searchsorted(borders, ideal), len(self.groups)]).tolist()
        return [self._part(first, last) for first, last in pairwise(cuts)]

    def _part(self, first: int, last: int) -> Self:
        sequences = slice(int(self.groups[:first].sum()), int(self.groups[:last].sum()))
        begin, end = (int(self.starts[n]) for n in (sequences.start, sequences.stop))
        read = slice(
            int(self.sizes[: sequences.start].sum()), int(self.sizes[: sequences.stop].sum())
        )
        asked = slice(int(self.spread[:first].sum()), int(self.spread[:last].sum()))
        return replace(
            self,
            input_ids=self.input_ids[begin:end],
            token_type_ids=self.token_type_ids[begin:end],
            lengths=self.lengths[sequences],
            places=self.places[read] - begin,
            sizes=self.sizes[sequences],
            groups=self.groups[first:last],
            targets=self.targets[asked],
            spread=self.spread[first:last],
            sample_ids=self.sample_ids[sequences],
        )


def batch_of(name: str, groups: Sequence[Sequence[Item]]) -> TaskBatch:
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
        places=_flat([np.asarray(item.places) + start for item, start in pairs]),
        sizes=np.array([len(item.places) for item in items], np.int64),
        groups=np.array([len(group) for group in ordered], np.int64),
        targets=np.array([one for row in targets for one in row]),
        spread=np.array([len(row) for row in targets], np.int64),
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
