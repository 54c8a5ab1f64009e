"""Batches on the cores of a CPU, each on one of them.

torch divides every operation among the cores, which wait for each other after each. Several batches
can be computed at the same time instead, each on one core, so that no core waits.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import ceil
from threading import Lock
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

MIN_TOKENS, MAX_TOKENS = 256, 1024  # of a batch for one core: activations stay in its cache
_USED = Lock()  # the number of torch's threads is that of a process


def map_on_cores(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results of a function, in order; several at a time if torch has several threads.

    Until the iterator ends, torch computes with one thread for each item.
    """
    count = min(torch.get_num_threads(), len(items))
    if count < 2 or not _USED.acquire(blocking=False):  # noqa: PLR2004
        yield from map(function, items)
        return
    before = torch.get_num_threads()
    is_inference = torch.is_inference_mode_enabled()

    def compute(item: T) -> R:
        with torch.inference_mode(is_inference), torch.set_grad_enabled(is_grad):
            return function(item)

    is_grad = torch.is_grad_enabled()
    try:
        torch.set_num_threads(1)
        with ThreadPoolExecutor(
            count, "cloze-core", initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield from _map_ahead(pool, compute, items, 2 * count)
    finally:
        torch.set_num_threads(before)
        _USED.release()


def _map_ahead(
    pool: ThreadPoolExecutor, function: Callable[[T], R], items: Sequence[T], ahead: int
) -> Iterator[R]:
    """As `Executor.map`, but only a few results are waiting."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for one in waiting:
            one.cancel()


def choose_tokens_per_core(lengths: Sequence[int], default: int) -> int:
    """The maximum number of tokens in a batch such that all cores have about the same to do."""
    count, total = torch.get_num_threads(), sum(lengths)
    if count < 2 or total < 2 * MIN_TOKENS:  # noqa: PLR2004
        return default
    batches = count * ceil(total / (count * MAX_TOKENS))
    return max(MIN_TOKENS, ceil(total / batches) + max(lengths))
