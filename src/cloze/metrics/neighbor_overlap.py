"""Leakage of retrieval: how much of a text its neighbors contain word for word.

Borgeaud et al. 2021, §2.6: the longest run of tokens that a chunk and its neighbors share, as a
fraction of the chunk. c chunks, k neighbors, l tokens of a neighbor, m tokens of a chunk.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.data.chunks import ChunkTable

MAX_CHUNKS = 2000  # that are compared, at equal distances
THRESHOLDS = {"at_least_1/8": 1 / 8, "at_least_1/2": 1 / 2, "whole": 1.0}

Ints = NDArray[np.int64]


class Values(Protocol):
    """The method of a chunk database that is used here."""

    def read_values(self, numbers: Ints, /) -> tuple[Any, Any]:
        """Tokens of the chunks with these numbers and of their continuations, and a mask."""
        ...


def measure_overlap(
    chunks: ChunkTable, database: Values, numbers: Ints, rows: Ints
) -> dict[str, Any]:
    """The overlap of neighbors (numbers: c k) with some chunks, and with what follows these.

    A chunk is similar to its neighbors by design; what follows it is to be predicted, so that is
    where near-duplicates leak. Chunks without a whole chunk after them are left out.
    """
    length = chunks.chunk_length
    rows = rows[chunks.starts[rows] + 2 * length <= chunks.ends[rows]]
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MAX_CHUNKS)).astype(np.int64)]
    if not len(rows):
        return {"chunks": 0}
    found = compute_overlaps(chunks, database, numbers, rows)
    summary: dict[str, Any] = {"chunks": len(rows)}
    for name, overlaps in zip(("chunk", "continuation"), found, strict=True):
        summary[name] = {"mean": round(float(overlaps.mean()), 4)} | {
            label: round(float((overlaps >= least).mean()), 4)
            for label, least in THRESHOLDS.items()
        }
    return summary


def compute_overlaps(
    chunks: ChunkTable, database: Values, numbers: Ints, rows: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each chunk the overlap of its neighbors with it, and with what follows it."""
    length = chunks.chunk_length
    texts = np.stack(
        [
            chunks.corpus.read_tokens(int(start), int(start) + 2 * length)[0].astype(np.int64)
            for start in chunks.starts[rows]
        ]
    )  # c 2m
    ids, mask = database.read_values(numbers[rows])  # c k l
    neighbors = np.where(mask, ids, -1)
    both = (texts[:, :length], texts[:, length:])
    own, following = (find_longest_match(one, neighbors).max(1) / length for one in both)
    return own, following


def find_longest_match(texts: Ints, neighbors: Ints) -> Ints:
    """The length of the longest run of tokens that a text (c m) and a neighbor (c k l) share."""
    count, k, length = neighbors.shape
    run = np.zeros((count, k, texts.shape[1] + 1), np.int64)  # that ends at each token of the text
    longest = np.zeros((count, k), np.int64)
    for position in range(length):
        equal = texts[:, None] == neighbors[:, :, position, None]  # c k m
        run[:, :, 1:] = np.where(equal, run[:, :, :-1] + 1, 0)
        longest = np.maximum(longest, run.max(2))
    return longest
