"""Samples into batches of a fixed number of places, almost all of them filled."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import numpy as np

from cloze.data.batch import Ints, PackedBatch
from cloze.data.config import PACKING_WINDOW, Batching
from cloze.data.corpus import CorpusSplit
from cloze.data.samples import Samples, Sampling
from cloze.errors import ConfigError
from cloze.text.tokenizer import Tokenizer


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
    def non_padding_fraction(self) -> float:
        """The share of places with a token in them."""
        return self.tokens / (len(self) * self.capacity)


def pack_sequences(lengths: Ints, capacity: int, *, window: int | None = PACKING_WINDOW) -> Packing:
    """Fill batches of `capacity` places with sequences, nearly in order.

    The oldest sequence goes in as long as it fits; then gaps are filled with the longest of the
    next `window` that fits; without a window they stay as they come. The same lengths always give
    the same batches.
    """
    if len(lengths) and lengths.max() > capacity:
        raise ConfigError(
            f"a sequence of {lengths.max():,} tokens does not fit {capacity:,} places",
            fix="raise the tokens of a batch, or shorten the samples",
        )
    if window is None:
        members, starts = np.arange(len(lengths)), _pack_in_order(lengths, capacity)
    else:
        batches = list(_pack_with_window(lengths.tolist(), capacity, window))
        members = np.array([number for batch in batches for number in batch], np.int64)
        starts = np.cumsum([0, *(len(batch) for batch in batches)])
    return Packing(members=members, starts=starts, capacity=capacity, tokens=int(lengths.sum()))


def _pack_in_order(lengths: Ints, capacity: int) -> Ints:
    """Where batches begin that take sequences as they come, until the next does not fit."""
    ends = lengths.cumsum()
    starts = [0]
    while starts[-1] < len(lengths):
        before = ends[starts[-1] - 1] if starts[-1] else 0
        starts.append(int(np.searchsorted(ends, before + capacity, "right")))
    return np.array(starts)


def _pack_with_window(lengths: list[int], capacity: int, window: int) -> Iterator[list[int]]:
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


class Epoch:
    """The batches of one pass over the documents."""

    def __init__(self, samples: Samples, batching: Batching) -> None:
        self.samples = samples
        self.packing = pack_sequences(samples.plan.lengths, batching.tokens, window=batching.window)

    def __len__(self) -> int:
        return len(self.packing)

    def __getitem__(self, number: int) -> PackedBatch:
        return self.samples.make_batch(self.packing[number])


class PackedBatches:
    """Batches without end, epoch after epoch, found by the number of a step.

    A step takes the next `per_step` batches, over the end of an epoch if need be, so every step is
    full and no batch is left out. Processes share each step out: which samples it has does not
    depend on their number.

    Epochs differ a little in size, so finding a step means knowing the sizes of those before it.
    Whoever keeps `sizes` and sets it when a run is resumed saves planning them again.
    """

    def __init__(
        self,
        split: CorpusSplit,
        tokenizer: Tokenizer,
        sampling: Sampling,
        batching: Batching,
    ) -> None:
        self._split, self._tokenizer, self._sampling = split, tokenizer, sampling
        self.batching = batching
        self.epoch_sizes: list[int] = []  # batches in each epoch so far
        self._epochs: dict[int, Epoch] = {}
        self._prefetched: dict[int, Future[Epoch]] = {}

    def epoch(self, number: int) -> Epoch:
        """One pass over the documents."""
        if number not in self._epochs:
            # A step may need two epochs, and a plan takes seconds: the last one stays.
            self._epochs = dict([*self._epochs.items()][-1:])
            ahead = self._prefetched.pop(number, None)
            self._epochs[number] = self._plan_epoch(number) if ahead is None else ahead.result()
        return self._epochs[number]

    def prefetch_epoch(self, number: int) -> None:
        """Plan an epoch while others are learned, so that nobody waits for it later."""
        if number not in self._epochs and number not in self._prefetched:
            planner = ThreadPoolExecutor(1)
            self._prefetched[number] = planner.submit(self._plan_epoch, number)
            planner.shutdown(wait=False)

    def _plan_epoch(self, number: int) -> Epoch:
        samples = Samples(self._split, self._tokenizer, self._sampling, epoch=number)
        return Epoch(samples, self.batching)

    def locate(self, number: int) -> tuple[int, int]:
        """The epoch of a batch, counted over all of them, and its number there."""
        for epoch in count():
            if epoch == len(self.epoch_sizes):
                self.epoch_sizes.append(len(self.epoch(epoch)))
            if number < self.epoch_sizes[epoch]:
                break
            number -= self.epoch_sizes[epoch]
        return epoch, number

    def batch(self, number: int) -> PackedBatch:
        """One batch, counted over all epochs."""
        epoch, place = self.locate(number)
        return self.epoch(epoch)[place]

    def step(self, number: int, *, rank: int = 0, world_size: int = 1) -> list[PackedBatch]:
        """This process's batches of a step."""
        return [
            self.batch(one) for one in self.batch_numbers(number, rank=rank, world_size=world_size)
        ]

    def batch_numbers(self, step: int, *, rank: int = 0, world_size: int = 1) -> range:
        """The numbers of this process's batches of a step."""
        size = self.batching.per_step
        if size % world_size:
            raise ConfigError(
                f"{size} batches a step cannot be shared by {world_size} processes",
                fix=f"make per_step a multiple of {world_size}",
            )
        return range(step * size + rank, (step + 1) * size, world_size)
