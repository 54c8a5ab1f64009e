"""The objective of RETRO: the next token, with the neighbors of earlier chunks.

n tokens of the packed row, r retrieving chunks, k neighbors, l tokens of a neighbor, m tokens of a
chunk, v vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.data.chunks import ChunkTable
from cloze.models.retro import Retro
from cloze.nn.retrieval import ChunkNeighbors, ChunkPositions
from cloze.objectives.core import Terms
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy
from cloze.objectives.pretraining import CausalLMBatch, make_layout, make_next_token_targets


class ValueReader(Protocol):
    """The attribute of a chunk database that the objective uses."""

    def read_values(self, numbers: NDArray[np.int64], /) -> tuple[Any, Any]:
        """Tokens of the chunks with these numbers and of their continuations, and a mask."""
        ...


@dataclass(frozen=True, eq=False)
class CorpusNeighbors:
    """The neighbors of every chunk of a corpus."""

    chunks: ChunkTable
    database: ValueReader
    numbers: NDArray[np.int64]  # c k: chunks of the database; −1 where there are fewer


@dataclass(frozen=True, kw_only=True, eq=False)
class RetroBatch(CausalLMBatch):
    """A batch whose samples begin with a chunk, and the neighbors of all chunks of the corpus."""

    neighbors: CorpusNeighbors | None  # None: nothing is retrieved

    def read_neighbors(self, device: torch.device) -> ChunkNeighbors | None:
        """The neighbors of the chunks of this batch."""
        table = self.neighbors
        if table is None:
            return None
        first, counts = table.chunks.find_spans(self.a)
        lengths = self.lengths.astype(np.int64)
        positions = ChunkPositions.locate(
            np.cumsum(lengths) - lengths,
            lengths,
            counts,
            chunk_length=table.chunks.chunk_length,
            size=self.capacity,
        )
        number = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        found = table.numbers[np.repeat(first, counts) + number]  # r k
        known = (found >= 0).any(1)
        ids, mask = table.database.read_values(found[known])
        return ChunkNeighbors.from_arrays(ids, mask, positions.select(known), device)


def retro_objective(
    model: Retro,
    batch: RetroBatch,
    rng: torch.Generator | None = None,  # noqa: ARG001
) -> Terms:
    """−Σ log p(xₜ₊₁ | x₁ … xₜ, neighbors of the chunks before it).  Borgeaud et al. 2021, eq. 1."""
    row = batch.gather_tokens()
    layout = make_layout(batch, row, varlen=model.supports_varlen)
    hidden = model(row.ids, layout, None, batch.read_neighbors(row.ids.device))  # n d
    operands = model.lm_head_operands(hidden)
    loss, hits = fused_linear_cross_entropy(*operands, make_next_token_targets(row))
    return {"lm": loss, "lm.accuracy": hits}
