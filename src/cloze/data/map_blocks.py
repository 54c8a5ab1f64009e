"""Apply a function to blocks of data, in order: in this process, or by actors of a Ray cluster.

A block is what is computed together, such as some rows. `make` makes the function where it is
used, so that a worker loads its model once: it must be importable, or an object of an importable
class, because workers of Ray receive it by pickle.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from cloze.config import in_range, one_of
from cloze.errors import ConfigError

Engine = Literal["local", "ray"]
MAX_WORKERS = 1 << 16

B = TypeVar("B")
R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Where blocks are computed."""

    engine: Engine = "local"  # this process, or Ray
    address: str | None = None  # of a Ray cluster, such as HOST:6379; None starts Ray here
    workers: int | None = None  # None: one per GPU, or per core if no GPU is used
    use_gpu: bool | None = None  # None: if there is one

    def __post_init__(self) -> None:
        one_of("engine", self.engine, get_args(Engine))
        if self.workers is not None:
            in_range("workers", self.workers, 1, MAX_WORKERS)
        given = [name for name in ("address", "workers") if getattr(self, name) is not None]
        if given and self.engine != "ray":
            raise ConfigError(
                f"{given[0]} has no effect without the engine ray",
                fix=f"use engine='ray' (--engine ray), or leave {given[0]} out",
            )


def map_blocks(
    make: Callable[[], Callable[[B], R]],
    blocks: Iterable[B],
    options: ExecutorOptions | None = None,
) -> Iterator[R]:
    """Yield the result of each block, in the order of the blocks.

    Blocks are read when there is a worker for them, so that few are in memory. With Ray a block
    whose worker dies is computed again, by a new worker.
    """
    if options is not None and options.engine == "ray":
        from cloze.data.ray_workers import map_with_ray

        yield from map_with_ray(make, blocks, options)
        return
    function = make()
    for block in blocks:
        yield function(block)


def uses_gpu(device: str | None) -> bool | None:
    """Whether workers need a GPU for a device; None if it is not given."""
    return None if device is None else device.partition(":")[0] == "cuda"


def cut_blocks(
    rows: Iterable[S], *, max_rows: int, max_size: int, measure: Callable[[S], int]
) -> Iterator[list[S]]:
    """Cut rows into blocks of at most `max_rows`, which end when their sizes reach `max_size`.

    The cuts depend on the rows alone, so that an interrupted job finds the same blocks again.
    """
    block: list[S] = []
    size = 0
    for row in rows:
        block.append(row)
        size += measure(row)
        if len(block) >= max_rows or size >= max_size:
            yield block
            block, size = [], 0
    if block:
        yield block
