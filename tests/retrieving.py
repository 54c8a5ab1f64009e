"""Small things to test retrieval with."""

import numpy as np
import torch

from cloze.nn.retrieval import ChunkNeighbors, ChunkPositions


def draw_neighbors(module, count, seed=0):
    """Random tokens of the neighbors of so many chunks: c k l."""
    config = module.config
    size = (count, config.num_neighbors, config.neighbor_length)
    return np.random.default_rng(seed).integers(0, config.vocab_size, size)


def place_neighbors(module, lengths, ids, mask=None, *, stride=None):
    """The neighbors of all complete chunks of sequences; padded to `stride`, or in a flat row."""
    lengths = np.array(lengths)
    starts = np.cumsum(lengths) - lengths if stride is None else np.arange(len(lengths)) * stride
    size = int(lengths.sum()) if stride is None else stride * len(lengths)
    chunk = module.config.chunk_length
    positions = ChunkPositions.locate(
        starts, lengths, (lengths - 1) // chunk, chunk_length=chunk, size=size
    )
    mask = np.ones(ids.shape, np.bool_) if mask is None else mask
    return ChunkNeighbors.from_arrays(ids, mask, positions, torch.device("cpu"))


def some_neighbors(module, *, rows, length, seed=0):
    """Random neighbors of all complete chunks of rows of one length."""
    count = rows * ((length - 1) // module.config.chunk_length)
    return place_neighbors(module, [length] * rows, draw_neighbors(module, count, seed))


class RandomRetriever:
    """Neighbors that depend on a chunk alone; one neighbor in four is missing or has no end."""

    def __init__(self, module):
        self._module, self.calls = module, 0

    def find(self, chunks):
        self.calls += len(chunks)
        found = []
        for chunk in chunks:
            ids = draw_neighbors(self._module, 1, seed=hash(tuple(chunk)) % 1000)[0]
            mask = np.ones(ids.shape, np.bool_)
            if sum(chunk) % 4 == 0:
                mask[-1] = False
            elif sum(chunk) % 4 == 1:
                mask[0, ids.shape[1] // 2 :] = False
            elif sum(chunk) % 16 == 2:
                mask[:] = False
            found.append((ids, mask))
        return np.stack([one[0] for one in found]), np.stack([one[1] for one in found])

    def describe(self, ids):  # noqa: ARG002
        return ()
