"""Packs samples into batches of a fixed number of tokens with little padding."""

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
    """Which samples form each batch."""

    members: Ints  # sample ids, batch by batch, the longest first in each batch
    starts: Ints  # start of each batch in `members`, and the number of samples
    capacity: int  # token positions of a batch
    tokens: int  # in all batches

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> Ints:
        """The sample ids of a batch."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self.members[self.starts[number] : self.starts[number + 1]]

    @property
    def non_padding_fraction(self) -> float:
        """The fraction of the token positions that are not padding."""
        return self.tokens / (len(self) * self.capacity)


def pack_sequences(lengths: Ints, capacity: int, *, window: int | None = PACKING_WINDOW) -> Packing:
    """Pack sequences into batches of at most `capacity` tokens, nearly in order.

    A batch takes the next sequence as long as it fits. It is then filled with the longest sequences
    that fit among the next `window`. If `window` is None, sequences stay in order and gaps are not
    filled. The result depends on the lengths alone.
    """
    if len(lengths) and lengths.max() > capacity:
        raise ConfigError(
            f"a sequence of {lengths.max():,} tokens does not fit into a batch of {capacity:,}",
            fix="increase the tokens per batch, or reduce the maximum length of the samples",
        )
    if window is None:
        members, starts = np.arange(len(lengths)), _pack_in_order(lengths, capacity)
    else:
        batches = list(_pack_with_window(lengths.tolist(), capacity, window))
        members = np.array([number for batch in batches for number in batch], np.int64)
        starts = np.cumsum([0, *(len(batch) for batch in batches)])
    return Packing(members=members, starts=starts, capacity=capacity, tokens=int(lengths.sum()))


def _pack_in_order(lengths: Ints, capacity: int) -> Ints:
    """The start of each batch if sequences are packed in order, until the next does not fit."""
    ends = lengths.cumsum()
    starts = [0]
    while starts[-1] < len(lengths):
        before = ends[starts[-1] - 1] if starts[-1] else 0
        starts.append(int(np.searchsorted(ends, before + capacity, "right")))
    return np.array(starts)


def _pack_with_window(lengths: list[int], capacity: int, window: int) -> Iterator[list[int]]:
    """The sequence numbers of each batch."""
    # The window: sorted (length, -number), so that of equal lengths the first sequence is last.
    candidates: list[tuple[int, int]] = []
    is_packed = bytearray(len(lengths))
    first = following = 0  # the first sequence that is not packed, and the one after the window
    while first < len(lengths):
        remaining = capacity
        chosen: list[tuple[int, int]] = []
        while True:
            while following < len(lengths) and len(candidates) < window:
                insort(candidates, (lengths[following], -following))
                following += 1
            while first < len(lengths) and is_packed[first]:
                first += 1
            if first == len(lengths):
                break
            if lengths[first] <= remaining:
                index = bisect_left(candidates, (lengths[first], -first))
            else:
                index = bisect_left(candidates, (remaining, 1)) - 1  # the longest that fits
            if index < 0:
                break
            length, number = candidates.pop(index)
            chosen.append((length, number))
            is_packed[-number] = 1
            remaining -= length
        # sorted, because attention processes adjacent sequences of equal length together
        yield [-number for _, number in sorted(chosen, reverse=True)]


class Epoch:
    """The batches of one epoch."""

    def __init__(self, samples: Samples, batching: Batching) -> None:
        self.samples = samples
        self.packing = pack_sequences(samples.plan.lengths, batching.tokens, window=batching.window)

    def __len__(self) -> int:
        return len(self.packing)

    def __getitem__(self, number: int) -> PackedBatch:
        return self.samples.make_batch(self.packing[number])


class PackedBatches:
    """An unlimited sequence of batches, epoch after epoch; a step is accessed by its number.

    A step consists of the next `per_step` batches. It may continue in the next epoch, so that every
    step is complete and no batch is left out. The batches of a step are distributed over the
    processes: its samples do not depend on the number of processes.

    Epochs have slightly different numbers of batches, so the position of a step depends on the
    sizes of all earlier epochs. To resume a run without planning those again, restore
    `epoch_sizes`.
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
        self.epoch_sizes: list[int] = []  # number of batches of each epoch that was planned
        self._epochs: dict[int, Epoch] = {}
        self._prefetched: dict[int, Future[Epoch]] = {}

    def epoch(self, number: int) -> Epoch:
        """The batches of an epoch."""
        if number not in self._epochs:
            # A step may need two epochs, and planning one takes seconds: keep the last one.
            self._epochs = dict([*self._epochs.items()][-1:])
            future = self._prefetched.pop(number, None)
            self._epochs[number] = self._plan_epoch(number) if future is None else future.result()
        return self._epochs[number]

    def prefetch_epoch(self, number: int) -> None:
        """Plan an epoch in a background thread, so that training does not wait for it later."""
        if number not in self._epochs and number not in self._prefetched:
            executor = ThreadPoolExecutor(1)
            self._prefetched[number] = executor.submit(self._plan_epoch, number)
            executor.shutdown(wait=False)

    def _plan_epoch(self, number: int) -> Epoch:
        samples = Samples(self._split, self._tokenizer, self._sampling, epoch=number)
        return Epoch(samples, self.batching)

    def locate(self, number: int) -> tuple[int, int]:
        """The epoch of a batch that is numbered over all epochs, and its index in that epoch."""
        for epoch in count():
            if epoch == len(self.epoch_sizes):
                self.epoch_sizes.append(len(self.epoch(epoch)))
            if number < self.epoch_sizes[epoch]:
                break
            number -= self.epoch_sizes[epoch]
        return epoch, number

    def batch(self, number: int) -> PackedBatch:
        """The batch with this number, over all epochs."""
        epoch, index = self.locate(number)
        return self.epoch(epoch)[index]

    def step(self, number: int, *, rank: int = 0, world_size: int = 1) -> list[PackedBatch]:
        """The batches of a step for one process."""
        return [
            self.batch(one) for one in self.batch_numbers(number, rank=rank, world_size=world_size)
        ]

    def batch_numbers(self, step: int, *, rank: int = 0, world_size: int = 1) -> range:
        """The numbers of the batches of a step for one process, over all epochs."""
        size = self.batching.per_step
        if size % world_size:
            raise ConfigError(
                f"{size} batches per step cannot be distributed evenly over {world_size} processes",
                fix=f"make per_step a multiple of {world_size}",
            )
        return range(step * size + rank, (step + 1) * size, world_size)
