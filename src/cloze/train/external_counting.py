"""Count keys that do not fit in memory: sorted runs on disk, merged block by block."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cloze.files import open_for_writing

Ints = NDArray[np.signedinteger[Any]]
Array = NDArray[Any]

_BYTES_PER_KEY = 64  # for sorting and counting, including copies


class ScratchFolder:
    """Temporary arrays: small ones in memory, large ones in files of a folder."""

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder = folder
        self.chunk = max(1, memory // _BYTES_PER_KEY)  # elements to work on at once
        self._names = count()

    def zeros(self, dtype: DTypeLike, size: int) -> Array:
        """An array of zeros."""
        if size <= self.chunk // 8:
            return np.zeros(size, dtype)
        return np.memmap(self._file(), dtype, mode="w+", shape=(size,))

    def write_array(self, dtype: DTypeLike, parts: Iterable[Array]) -> Array:
        """Concatenate a stream of arrays."""
        return self.write_columns((dtype,), ((part,) for part in parts))[0]

    def write_columns(
        self, dtypes: tuple[DTypeLike, ...], parts: Iterable[tuple[Array, ...]]
    ) -> tuple[Array, ...]:
        """Concatenate several streams of arrays together."""
        paths = [self._file() for _ in dtypes]
        files = [open_for_writing(path) for path in paths]
        try:
            for part in parts:
                for file, dtype, column in zip(files, dtypes, part, strict=True):
                    file.write(np.ascontiguousarray(column, dtype).data)
        finally:
            for file in files:
                file.close()
        return tuple(map(_map_file, paths, dtypes))

    def chunks(self, size: int) -> Iterator[slice]:
        """Slices of `size` elements that fit in memory."""
        for start in range(0, size, self.chunk):
            yield slice(start, min(start + self.chunk, size))

    def _file(self) -> Path:
        return self.folder / f"{next(self._names):04}"


def _map_file(path: Path, dtype: DTypeLike) -> Array:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r+")


@dataclass(frozen=True)
class KeyCounts:
    """Distinct keys in ascending order, and the count of each."""

    keys: Ints
    counts: Ints


def count_keys(chunks: Iterable[Ints], scratch: ScratchFolder) -> KeyCounts:
    """Count the keys of a stream of chunks, each of which fits in memory."""
    kinds = (np.int64, np.int64)
    runs = [KeyCounts(*scratch.write_columns(kinds, [_count_chunk(chunk)])) for chunk in chunks]
    if len(runs) == 1:
        return runs[0]
    return KeyCounts(
        *scratch.write_columns(kinds, _merge_runs(runs, max(1, scratch.chunk // (len(runs) or 1))))
    )


def _merge_runs(runs: list[KeyCounts], block: int) -> Iterator[tuple[Ints, Ints]]:
    """Merge sorted runs block by block.

    All keys up to the smallest last key of the blocks are in the blocks, so their counts are final.
    """
    positions = [0] * len(runs)
    while True:
        heads = [run.keys[at : at + block] for run, at in zip(runs, positions, strict=True)]
        if not any(len(head) for head in heads):
            return
        bound = min(head[-1] for head in heads if len(head))
        taken = [int(np.searchsorted(head, bound, side="right")) for head in heads]
        counts = [run.counts[a : a + n] for run, a, n in zip(runs, positions, taken, strict=True)]
        keys = [head[:n] for head, n in zip(heads, taken, strict=True)]
        yield _sum_counts(np.concatenate(keys), np.concatenate(counts))
        positions = [at + n for at, n in zip(positions, taken, strict=True)]


def _count_chunk(keys: Ints) -> tuple[Ints, Ints]:
    keys = np.sort(keys)
    firsts = run_starts(keys)
    return keys[firsts], np.diff(firsts, append=len(keys))


def _sum_counts(keys: Ints, counts: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(keys, kind="stable")  # merges sorted parts in linear time
    keys = keys[order]
    firsts = run_starts(keys)
    return keys[firsts], np.add.reduceat(counts[order], firsts)


def run_starts(sorted_: Ints) -> Ints:
    """The first index of each run of equal values."""
    return np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1]))[: len(sorted_)])


def add_grouped(target: Array, index: Ints, values: Array) -> None:
    """target[index] += values, for an ascending index with repeats."""
    firsts = run_starts(index)
    if len(firsts):
        target[index[firsts]] += np.add.reduceat(values, firsts)
