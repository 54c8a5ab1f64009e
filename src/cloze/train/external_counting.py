"""Counting what does not fit in memory: sorted runs on disk, merged block by block."""

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

_BYTES_EACH = 64  # that sorting and counting take for one key, copies included


class ScratchFolder:
    """Arrays for a while: small ones in memory, large ones in files of a folder."""

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder = folder
        self.chunk = max(1, memory // _BYTES_EACH)  # elements to work on at once
        self._names = count()

    def zeros(self, dtype: DTypeLike, size: int) -> Array:
        """An array of zeros to be filled in."""
        if size <= self.chunk // 8:
            return np.zeros(size, dtype)
        return np.memmap(self._file(), dtype, mode="w+", shape=(size,))

    def write_array(self, dtype: DTypeLike, parts: Iterable[Array]) -> Array:
        """Arrays of unknown number, one behind the other."""
        return self.write_columns((dtype,), ((part,) for part in parts))[0]

    def write_columns(
        self, dtypes: tuple[DTypeLike, ...], parts: Iterable[tuple[Array, ...]]
    ) -> tuple[Array, ...]:
        """The same for several arrays that grow together."""
        paths = [self._file() for _ in dtypes]
        files = [open_for_writing(path) for path in paths]
        try:
            for part in parts:
                for file, dtype, column in zip(files, dtypes, part, strict=True):
                    file.write(np.ascontiguousarray(column, dtype).data)
        finally:
            for file in files:
                file.close()
        return tuple(map(_opened, paths, dtypes))

    def chunks(self, size: int) -> Iterator[slice]:
        """`size` elements in stretches that fit in memory."""
        for start in range(0, size, self.chunk):
            yield slice(start, min(start + self.chunk, size))

    def _file(self) -> Path:
        return self.folder / f"{next(self._names):04}"


def _opened(path: Path, dtype: DTypeLike) -> Array:
    if not path.stat().st_size:  # which cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r+")


@dataclass(frozen=True)
class KeyCounts:
    """Different keys in ascending order, and how often each was seen."""

    keys: Ints
    counts: Ints


def count_keys(chunks: Iterable[Ints], scratch: ScratchFolder) -> KeyCounts:
    """Count the keys of a stream of chunks, each of which fits in memory."""
    kinds = (np.int64, np.int64)
    runs = [KeyCounts(*scratch.write_columns(kinds, [_counted(chunk)])) for chunk in chunks]
    if len(runs) == 1:
        return runs[0]
    return KeyCounts(
        *scratch.write_columns(kinds, _merged(runs, max(1, scratch.chunk // (len(runs) or 1))))
    )


def _merged(runs: list[KeyCounts], block: int) -> Iterator[tuple[Ints, Ints]]:
    """The least keys of all runs, block by block.

    Every key up to the least of the blocks' last ones is in the blocks, so these are complete.
    """
    places = [0] * len(runs)
    while True:
        heads = [run.keys[at : at + block] for run, at in zip(runs, places, strict=True)]
        if not any(len(head) for head in heads):
            return
        bound = min(head[-1] for head in heads if len(head))
        taken = [int(np.searchsorted(head, bound, side="right")) for head in heads]
        counts = [run.counts[a : a + n] for run, a, n in zip(runs, places, taken, strict=True)]
        keys = [head[:n] for head, n in zip(heads, taken, strict=True)]
        yield _summed(np.concatenate(keys), np.concatenate(counts))
        places = [at + n for at, n in zip(places, taken, strict=True)]


def _counted(keys: Ints) -> tuple[Ints, Ints]:
    keys = np.sort(keys)
    firsts = run_starts(keys)
    return keys[firsts], np.diff(firsts, append=len(keys))


def _summed(keys: Ints, counts: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(keys, kind="stable")  # which merges stretches that are in order
    keys = keys[order]
    firsts = run_starts(keys)
    return keys[firsts], np.add.reduceat(counts[order], firsts)


def run_starts(sorted_: Ints) -> Ints:
    """Where each stretch of equal values begins."""
    return np.flatnonzero(np.concatenate(([True], sorted_[1:] != sorted_[:-1]))[: len(sorted_)])


def add_grouped(target: Array, index: Ints, values: Array) -> None:
    """target[index] += values, for an ascending index with repeats."""
    firsts = run_starts(index)
    if len(firsts):
        target[index[firsts]] += np.add.reduceat(values, firsts)
