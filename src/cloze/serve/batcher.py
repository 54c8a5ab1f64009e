"""One thread that computes what requests ask for, in batches that form while it is busy.

There is no timer: an idle thread takes an input at once, and whatever arrives meanwhile is the next
batch. Between two batches, the continuations of language models and the drawings of diffusion
models advance by one step.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from cloze.serve.failures import refuse
from cloze.serve.fair_queue import Entry, FairQueue, Job

Run = Callable[[Hashable, list[Any]], Sequence[Any]]
"""Computes inputs with the same key; a result that is an exception is the error of its input."""

_RATE_SECONDS = 10.0  # over which the speed is averaged


class Observer(Protocol):
    """Is told what the thread does (`cloze.serve.metrics`)."""

    def observe_admitted(self, tokens: int) -> None: ...
    def observe_queue(self, seconds: float) -> None: ...
    def observe_batch(self, seconds: float, inputs: int, tokens: int) -> None: ...


class Continuations(Protocol):
    """Work that advances step by step (`cloze.serve.generation`, `cloze.serve.drawing`)."""

    def accepts(self, key: Hashable) -> bool: ...
    def room(self, key: Hashable) -> int: ...
    def start(self, entries: Sequence[Entry]) -> None: ...
    def step(self) -> list[tuple[Entry, Any]]: ...
    def clear(self) -> list[Entry]: ...
    def __bool__(self) -> bool: ...


class SeveralContinuations:
    """Several kinds of work that advances step by step."""

    def __init__(self, *kinds: Continuations) -> None:
        self._kinds = kinds

    def __bool__(self) -> bool:
        return any(self._kinds)

    def accepts(self, key: Hashable) -> bool:
        """Whether one of them accepts inputs with this key."""
        return any(kind.accepts(key) for kind in self._kinds)

    def room(self, key: Hashable) -> int:
        """Tokens that may join now."""
        return self._find(key).room(key)

    def start(self, entries: Sequence[Entry]) -> None:
        """Begin with inputs of one key."""
        self._find(entries[0].job.key).start(entries)

    def step(self) -> list[tuple[Entry, Any]]:
        """One more step of each; returns what is finished."""
        return [found for kind in self._kinds for found in kind.step()]

    def clear(self) -> list[Entry]:
        """Forget all inputs, and return them."""
        return [entry for kind in self._kinds for entry in kind.clear()]

    def _find(self, key: Hashable) -> Continuations:
        return next(kind for kind in self._kinds if kind.accepts(key))


@dataclass(eq=False)
class Reservation:
    """The tokens of a request, from its arrival until its answer."""

    tokens: int


class Batcher:
    """The queue, its limit and its thread."""

    def __init__(
        self,
        run: Run,
        *,
        batch_tokens: int,
        max_tokens: int,
        observer: Observer | None = None,
        continuations: Continuations | None = None,
    ) -> None:
        self._run, self._batch_tokens, self._max_tokens = run, batch_tokens, max_tokens
        self._observer, self._continuations = observer, continuations
        self._queue, self._admitted = FairQueue(), 0
        self._changed = threading.Condition()
        self._recent: deque[tuple[float, int]] = deque()  # when and how many tokens were computed
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="cloze-compute", daemon=True)
        self._loops: dict[Job, tuple[asyncio.AbstractEventLoop, asyncio.Future[list[Any]]]] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after what it computes now."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def admitted_tokens(self) -> int:
        """Tokens of all requests that are not answered yet."""
        return self._admitted

    @contextmanager
    def admit(self, tokens: int) -> Any:  # noqa: ANN401 - an iterator of `Reservation`
        """Count a request; if the queue is full, it is refused at once."""
        reservation = Reservation(0)
        self.resize(reservation, max(1, tokens))
        try:
            yield reservation
        finally:
            with self._changed:
                self._set_admitted(self._admitted - reservation.tokens)

    def resize(self, reservation: Reservation, tokens: int) -> None:
        """Correct the number of tokens of a request when it is known."""
        with self._changed:
            others = self._admitted - reservation.tokens
            if others and others + tokens > self._max_tokens:
                wait = self._estimate_wait()
                raise refuse(
                    429,
                    "queue_full",
                    f"the queue is full: {others:,} of {self._max_tokens:,} tokens are waiting",
                    fix="try again later",
                    retry_after=wait,
                )
            self._set_admitted(others + tokens)
            reservation.tokens = tokens

    def _set_admitted(self, tokens: int) -> None:
        self._admitted = tokens
        if self._observer is not None:
            self._observer.observe_admitted(tokens)

    def _estimate_wait(self) -> float:
        """Seconds until a part of the queue is computed, by the recent speed."""
        now = time.monotonic()
        recent = [tokens for since, tokens in self._recent if now - since < _RATE_SECONDS]
        rate = sum(recent) / _RATE_SECONDS
        return min(30.0, max(0.1, 0.5 * self._admitted / rate)) if rate else 1.0

    async def submit(self, key: Hashable, inputs: Sequence[Any], costs: Sequence[int]) -> list[Any]:
        """Compute inputs, and return their results or exceptions in order.

        If the caller is cancelled, inputs that are still in the queue are not computed.
        """
        if not inputs:
            return []
        loop = asyncio.get_running_loop()
        job = Job(key=key, inputs=inputs, costs=costs, added_at=time.perf_counter())
        future: asyncio.Future[list[Any]] = loop.create_future()
        with self._changed:
            self._loops[job] = loop, future
            self._queue.push(job)
            self._changed.notify()
        try:
            return await future
        finally:
            with self._changed:
                self._queue.cancel(job)
                self._loops.pop(job, None)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._is_closing or self._queue or self._has_steps):
                    self._changed.wait()
                if self._is_closing:
                    return
                entries = self._queue.pop_batch(self._find_room)
            if entries:
                self._observe_start(entries)
                key = entries[0].job.key
                if self._continuations is not None and self._continuations.accepts(key):
                    self._start_continuations(self._continuations, entries)
                else:
                    self._compute(key, entries)
            if self._continuations is not None and self._has_steps:
                self._finish(_advance(self._continuations))

    def _start_continuations(self, running: Continuations, entries: Sequence[Entry]) -> None:
        for entry in entries:
            try:
                running.start([entry])
            except Exception as error:  # the thread goes on
                self._finish([(entry, error)])

    @property
    def _has_steps(self) -> bool:
        return bool(self._continuations)

    def _find_room(self, key: Hashable) -> int:
        if self._continuations is not None and self._continuations.accepts(key):
            return self._continuations.room(key)
        return self._batch_tokens

    def _observe_start(self, entries: Sequence[Entry]) -> None:
        if self._observer is None:
            return
        now = time.perf_counter()
        for entry in entries:
            if not entry.job.is_started:
                entry.job.is_started = True
                self._observer.observe_queue(now - entry.job.added_at)

    def _compute(self, key: Hashable, entries: list[Entry]) -> None:
        since = time.perf_counter()
        results = run_isolated(lambda some: self._run(key, some), [one.value for one in entries])
        seconds = time.perf_counter() - since
        if self._observer is not None:
            tokens = sum(entry.cost for entry in entries)
            self._observer.observe_batch(seconds, len(entries), tokens)
        self._finish(list(zip(entries, results, strict=True)))

    def _finish(self, found: Sequence[tuple[Entry, Any]]) -> None:
        """Store results, and wake up the requests that have all of theirs."""
        if not found:
            return
        now = time.monotonic()
        with self._changed:
            self._recent.append((now, sum(entry.cost for entry, _ in found)))
            while now - self._recent[0][0] > _RATE_SECONDS:
                self._recent.popleft()
            done = []
            for entry, result in found:
                job = entry.job
                job.results[entry.index] = result
                job.remaining -= 1
                if job.remaining == 0 and job in self._loops:
                    done.append((*self._loops[job], job.results))
        for loop, future, results in done:
            loop.call_soon_threadsafe(_set_result, future, results)


def _advance(running: Continuations) -> list[tuple[Entry, Any]]:
    """One step of all texts; if it fails, all of them fail, and the thread goes on."""
    try:
        return running.step()
    except Exception as error:
        return [(entry, error) for entry in running.clear()]


def _set_result(future: "asyncio.Future[list[Any]]", results: list[Any]) -> None:
    if not future.done():
        future.set_result(results)


def run_isolated(run: Callable[[list[Any]], Sequence[Any]], inputs: list[Any]) -> list[Any]:
    """The results of inputs; if computing them fails, halves are tried until the cause is alone."""
    try:
        return list(run(inputs))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        if len(inputs) == 1:
            return [error]
    half = len(inputs) // 2
    return run_isolated(run, inputs[:half]) + run_isolated(run, inputs[half:])
