"""Sequences laid one after another in one flat row, with no padding between them.

n tokens in the row, b sequences, t length of one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np
import torch
from torch import Tensor


def causal(length: int, device: torch.device | None = None) -> Tensor:
    """Position q may look at every k <= q."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()  # q k


def band(length: int, window: int, device: torch.device | None = None) -> Tensor:
    """Position q may look at every k with |q − k| <= window."""
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() <= window  # q k


@dataclass(frozen=True)
class Packed:
    """Who may look at whom in a flat row: each token at its own sequence, at nothing else.

    Neighbours of equal length form a run, and a run is a plain rectangle: attention needs no mask
    and no padding there. Whoever packs sorts by length to make the runs long. With a `window` it
    may look at most so many places to each side; `causal`, at no later one.
    """

    lengths: tuple[int, ...]
    device: torch.device | None = None
    window: int | None = None
    causal: bool = False

    @classmethod
    def of(cls, lengths: Iterable[int], device: torch.device | None = None) -> "Packed":
        return cls(tuple(int(length) for length in lengths), device)

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return max(self.lengths, default=0)

    @cached_property
    def starts(self) -> Tensor:
        """Where each sequence begins; the place of its [CLS]."""
        return torch.tensor([0, *accumulate(self.lengths)][:-1], device=self.device)  # b

    @cached_property
    def positions(self) -> Tensor:
        """0, 1, 2 … within each sequence."""
        lengths = np.array(self.lengths, np.int64)
        first = np.repeat(lengths.cumsum() - lengths, lengths)
        places = torch.from_numpy(np.arange(len(first)) - first)
        if self.device is not None and self.device.type == "cuda":  # or the copy would wait for it
            places = places.pin_memory()
        return places.to(self.device, non_blocking=True)  # n

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """(first token, number of sequences, their length) of each run."""
        return tuple(self._runs())

    def near(self, window: int) -> "Packed":
        """The same row, where no one looks further than `window` places."""
        return replace(self, window=window)

    def past(self) -> "Packed":
        """The same row, where no one looks ahead."""
        return replace(self, causal=True)

    def allowed(self, length: int) -> Tensor | None:
        """Who may look at whom in a sequence of a length (q k); None: everyone at all."""
        seen = None
        if self.window is not None and length > self.window + 1:
            seen = band(length, self.window, self.device)
        if not self.causal:
            return seen
        before = causal(length, self.device)
        return before if seen is None else before & seen

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        start = 0
        for length, same in groupby(self.lengths):
            count = sum(1 for _ in same)
            yield start, count, length
            start += count * length
