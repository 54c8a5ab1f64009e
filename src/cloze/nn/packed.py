"""Sequences laid one after another in one flat row, with no padding between them.

n tokens in the row, b sequences, t length of one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """Who may look at whom in a flat row: each token at its own sequence, at nothing else.

    Neighbours of equal length form a run, and a run is a plain rectangle: attention needs no mask
    and no padding there. Whoever packs sorts by length to make the runs long.
    """

    lengths: tuple[int, ...]
    device: torch.device | None = None

    @classmethod
    def of(cls, lengths: Iterable[int], device: torch.device | None = None) -> "Packed":
        return cls(tuple(int(length) for length in lengths), device)

    @cached_property
    def starts(self) -> Tensor:
        """Where each sequence begins; the place of its [CLS]."""
        return torch.tensor([0, *accumulate(self.lengths)][:-1], device=self.device)  # b

    @cached_property
    def positions(self) -> Tensor:
        """0, 1, 2 … within each sequence."""
        return torch.cat([torch.arange(t, device=self.device) for t in self.lengths])  # n

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """(first token, number of sequences, their length) of each run."""
        return tuple(self._runs())

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        start = 0
        for length, same in groupby(self.lengths):
            count = sum(1 for _ in same)
            yield start, count, length
            start += count * length
