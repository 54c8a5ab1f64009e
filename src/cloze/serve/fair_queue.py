"""A queue of the inputs of many requests, counted in tokens.

Start-time fair queueing (Goyal et al. 1996): every request gets its share of the tokens, so a short
request does not wait until a long one is finished. Inputs of different requests that have the same
key, that is the same model, function and options, are computed together.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

MAX_CANCELLED = 64  # inputs of cancelled jobs that stay in the queue, if it is short


@dataclass(eq=False, kw_only=True)
class Job:
    """The inputs of one request."""

    key: Hashable
    inputs: Sequence[Any]
    costs: Sequence[int]  # tokens of each input
    results: list[Any] = field(default_factory=list)
    remaining: int = 0  # inputs without a result
    is_cancelled: bool = False
    added_at: float = 0.0  # seconds, of any clock
    is_started: bool = False

    def __post_init__(self) -> None:
        self.results = [None] * len(self.inputs)
        self.remaining = len(self.inputs)


@dataclass(eq=False, slots=True)
class Entry:
    """One input of a job."""

    job: Job
    index: int

    @property
    def value(self) -> Any:  # noqa: ANN401
        return self.job.inputs[self.index]

    @property
    def cost(self) -> int:
        return self.job.costs[self.index]


class FairQueue:
    """Inputs that wait; not safe for threads."""

    def __init__(self) -> None:
        self._heaps: dict[Hashable, list[tuple[float, int, Entry]]] = {}
        self._now = 0.0  # virtual time: tokens that each waiting request has got
        self._numbers = count()
        self._cancelled: dict[Hashable, int] = {}  # inputs of cancelled jobs that may still be here
        self.tokens = 0  # that wait

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def push(self, job: Job) -> None:
        """Add the inputs of a job; the first one is as urgent as the next of any other job."""
        start, heap = self._now, self._heaps.setdefault(job.key, [])
        for index, cost in enumerate(job.costs):
            heappush(heap, (start, next(self._numbers), Entry(job, index)))
            start += cost
        self.tokens += sum(job.costs)
        if not heap:
            del self._heaps[job.key]

    def cancel(self, job: Job) -> None:
        """Forget a job; its inputs are dropped at once, or together with those of others."""
        if job.is_cancelled:
            return
        job.is_cancelled = True
        heap = self._heaps.get(job.key)
        if heap is None:
            return
        self._cancelled[job.key] = self._cancelled.get(job.key, 0) + job.remaining
        if self._cancelled[job.key] > max(MAX_CANCELLED, len(heap) // 2):
            self._drop_cancelled(job.key)

    def _drop_cancelled(self, key: Hashable) -> None:
        heap = self._heaps[key]
        kept = [item for item in heap if not item[2].job.is_cancelled]
        self.tokens -= sum(item[2].cost for item in heap) - sum(item[2].cost for item in kept)
        heapify(kept)
        self._heaps[key] = kept
        self._cancelled.pop(key, None)
        if not kept:
            del self._heaps[key]

    def pop_batch(self, max_tokens: Callable[[Hashable], int] = lambda _: 1 << 62) -> list[Entry]:
        """The next inputs, which have the same key, of up to so many tokens, at least one.

        `max_tokens` gives the limit of a key; inputs of a key whose limit is 0 have to wait.
        Inputs of cancelled jobs are dropped.
        """
        while (key := self._find_next(max_tokens)) is not None:
            batch = list(self._take(key, max_tokens(key)))
            if not self._heaps[key]:
                del self._heaps[key]
                self._cancelled.pop(key, None)
            if batch:
                return batch
        return []

    def _find_next(self, max_tokens: Callable[[Hashable], int]) -> Hashable | None:
        ready = (key for key in self._heaps if max_tokens(key) > 0)
        return min(ready, key=lambda key: self._heaps[key][0][:2], default=None)

    def _take(self, key: Hashable, room: int) -> Iterator[Entry]:
        heap, is_first = self._heaps[key], True
        while heap:
            start, _, entry = heap[0]
            if not entry.job.is_cancelled and not is_first and entry.cost > room:
                return
            heappop(heap)
            self.tokens -= entry.cost
            if not entry.job.is_cancelled:
                self._now = max(self._now, start)
                room, is_first = room - entry.cost, False
                yield entry
