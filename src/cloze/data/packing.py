"""Samples into batches of a fixed number of places, almost all of them filled."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cloze.config import in_range
from cloze.data.batch import Ints, PackedBatch
from cloze.data.corpus import View
from cloze.data.samples import Samples, Sampling
from cloze.errors import ConfigError
from cloze.text.tokenizer import Tokenizer

WINDOW = 512  # samples to choose from when filling a gap


@dataclass(frozen=True, kw_only=True, eq=False)
class Packing:
    """Which samples go together."""

    members: Ints  # sample numbers, batch after batch, longest first in each
    starts: Ints  # where each batch begins among them, and their number
    capacity: int
    tokens: int

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Ints:
        """The samples of one batch."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self.members[self.starts[number] : self.starts[number + 1]]

    @property
    def real_share(self) -> float:
        """The share of places with a token in them."""
        return self.tokens / (len(self) * self.capacity)


def pack(lengths: Ints, capacity: int, *, window: int = WINDOW) -> Packing:
    """Fill batches of `capacity` places with sequences, nearly in order.

    The oldest sequence goes in as long as it fits; then gaps are filled with the longest of the
    next `window` that fits. The same lengths always give the same batches. With a capacity of one
    sequence's greatest length, the batches are rows for a device that wants fixed shapes.
    """
    if len(lengths) and lengths.max() > capacity:
        raise ConfigError(
            f"a sequence of {lengths.max():,} tokens does not fit {capacity:,} places",
            fix="raise the tokens of a batch, or shorten the samples",
        )
    batches = list(_filled(lengths.tolist(), capacity, window))
    sizes = [len(batch) for batch in batches]
    return Packing(
        members=np.array([number for batch in batches for number in batch], np.int64),
        starts=np.cumsum([0, *sizes]),
        capacity=capacity,
        tokens=int(lengths.sum()),
    )


def _filled(lengths: list[int], capacity: int, window: int) -> Iterator[list[int]]:
    pool: list[tuple[int, int]] = []  # (length, -number), so that of equals the last is the oldest
    used = bytearray(len(lengths))
    oldest = ahead = 0
    while oldest < len(lengths):
        room = capacity
        chosen: list[tuple[int, int]] = []
        while True:
            while ahead < len(lengths) and len(pool) < window:
                insort(pool, (lengths[ahead], -ahead))
                ahead += 1
            while oldest < len(lengths) and used[oldest]:
                oldest += 1
            if oldest == len(lengths):
                break
            fits = (lengths[oldest], -oldest)
            place = bisect_left(pool, fits if fits[0] <= room else (room, 1)) - (fits[0] > room)
            if place < 0:
                break
            fits = pool.pop(place)
            chosen.append(fits)
            used[-fits[1]] = 1
            room -= fits[0]
        # Equal lengths side by side let attention treat them as one block.
        yield [-number for _, number in sorted(chosen, reverse=True)]


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How samples become steps: `per_step` batches of `tokens` places, over all processes."""

    tokens: int = 8192
    per_step: int = 1
    window: int = WINDOW

    def __post_init__(self) -> None:
        """Check once."""
        in_range("tokens", self.tokens, 1, 2**31)
        in_range("per_step", self.per_step, 1, 2**20)
        in_range("window", self.window, 1, 2**20)


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in the endless row of batches: all a run needs to go on where it was."""

    epoch: int = 0
    batch: int = 0


class Epoch:
    """The batches of one pass over the documents."""

    def __init__(self, samples: Samples, batching: Batching) -> None:
        self.samples = samples
        self.packing = pack(samples.plan.lengths, batching.tokens, window=batching.window)

    def __len__(self) -> int:
        return len(self.packing)

    def __getitem__(self, number: int) -> PackedBatch:
        return self.samples.batch(self.packing[number], capacity=self.packing.capacity)


class Batches:
    """Batches without end, epoch after epoch, found by position.

    A step takes the next `per_step` batches, over the end of an epoch if need be, so every step is
    full and no batch is left out. Processes share each step out: which samples it has does not
    depend on their number.
    """

    def __init__(
        self, view: View, tokenizer: Tokenizer, sampling: Sampling, batching: Batching
    ) -> None:
        self._view, self._tokenizer, self._sampling = view, tokenizer, sampling
        self._batching = batching
        # A step may need two epochs; a plan takes seconds, so both are kept.
        self._epochs: dict[int, Epoch] = {}

    def epoch(self, number: int) -> Epoch:
        """One pass over the documents."""
        if number not in self._epochs:
            samples = Samples(self._view, self._tokenizer, self._sampling, epoch=number)
            self._epochs = dict([*self._epochs.items()][-1:])
            self._epochs[number] = Epoch(samples, self._batching)
        return self._epochs[number]

    def step(
        self, position: Position, *, rank: int = 0, world: int = 1
    ) -> tuple[list[PackedBatch], Position]:
        """This process's batches of the step that begins at a position, and where the next does."""
        if self._batching.per_step % world:
            raise ConfigError(
                f"{self._batching.per_step} batches a step cannot be shared by {world} processes",
                fix=f"make per_step a multiple of {world}",
            )
        mine = []
        for turn in range(self._batching.per_step):
            if turn % world == rank:
                mine.append(self.epoch(position.epoch)[position.batch])
            position = self._next(position)
        return mine, position

    def _next(self, position: Position) -> Position:
        if position.batch + 1 < len(self.epoch(position.epoch)):
            return Position(epoch=position.epoch, batch=position.batch + 1)
        return Position(epoch=position.epoch + 1)
