"""Retrieval inside a decoder: chunked cross-attention, and the encoder of the neighbors.

Borgeaud et al. 2021, §2.3 and §2.4. Position 0 of a sequence holds the token that begins a text,
so that the tokens of chunk u = 1, 2 … are at the positions (u−1)·m+1 … u·m. The neighbors of chunk
u are read by the positions u·m … u·m+m−1: the last token of chunk u, which predicts the first token
of chunk u+1, and all but the last token of chunk u+1. The first m positions read nothing.

n tokens of all sequences, b sequences, r retrieving chunks of all sequences, m tokens of a chunk,
k neighbors of a chunk, l tokens of a neighbor (a chunk and its continuation), h heads, d width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.nn.attention import CrossAttention, KeyValue, KVCache, compute_attention
from cloze.nn.block import Block, BlockList
from cloze.nn.context import AttentionContext
from cloze.nn.layers import Dropout, LayerNorm

Ints: TypeAlias = NDArray[np.integer[Any]]
Encode: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Ids (r k l), their mask, and states of the decoder (r m d) -> encoded neighbors, r (k l) d."""


@dataclass(frozen=True)
class ChunkPositions:
    """Where the chunks of a batch are, for any layout of its sequences."""

    tokens: Ints  # r m: indices of the tokens of each chunk among all n tokens
    readers: Ints  # r m: those that read its neighbors; n where the sequence has ended before

    @classmethod
    def locate(
        cls, starts: Ints, lengths: Ints, chunks: Ints, *, chunk_length: int, size: int
    ) -> "ChunkPositions":
        """Find the first `chunks` chunks of each sequence, in the order of the sequences.

        `starts` and `lengths` are those of the sequences among all `size` tokens.
        """
        sequence = np.repeat(np.arange(len(chunks)), chunks)  # r
        number = np.arange(len(sequence)) - np.repeat(np.cumsum(chunks) - chunks, chunks)  # u - 1
        inside = number[:, None] * chunk_length + np.arange(1, chunk_length + 1)  # r m
        begin, end = starts[sequence, None], (starts + lengths)[sequence, None]
        readers = begin + inside + chunk_length - 1
        return cls(tokens=begin + inside, readers=np.where(readers < end, readers, size))

    def select(self, rows: NDArray[Any]) -> "ChunkPositions":
        """Those of some chunks."""
        return ChunkPositions(tokens=self.tokens[rows], readers=self.readers[rows])


@dataclass(frozen=True)
class ChunkNeighbors:
    """The neighbors of the chunks of a batch, which `Retro.forward` reads."""

    ids: Tensor  # r k l
    mask: Tensor  # r k l, False where a neighbor is missing or has ended
    tokens: Tensor  # r m: see `ChunkPositions`
    readers: Tensor  # r m

    @classmethod
    def from_arrays(
        cls, ids: Ints, mask: NDArray[np.bool_], positions: ChunkPositions, device: torch.device
    ) -> "ChunkNeighbors":
        """Copy to a device."""
        arrays = (
            *(ids.astype(np.int64), np.ascontiguousarray(mask)),
            *(positions.tokens.astype(np.int64), positions.readers.astype(np.int64)),
        )
        tensors = [torch.from_numpy(one) for one in arrays]
        if device.type == "cuda":  # else the copies would block
            tensors = [one.pin_memory() for one in tensors]
        return cls(*(one.to(device, non_blocking=True) for one in tensors))


class ChunkedCrossAttention(CrossAttention):
    """Cross-attention of each chunk to the neighbors of the chunk before it.

    Where nothing is retrieved, the result is 0, so that the block is that of a plain decoder.
    Deviation: the paper's relative positions of queries and keys are left out; the neighbor encoder
    has learned positions.
    """

    def forward(
        self,
        x: Tensor,
        context: AttentionContext,
        cache: KVCache | None = None,  # noqa: ARG002 (the retrieval has its own)
    ) -> Tensor:
        if context.retrieval is None:
            return torch.zeros_like(x)
        mixed: Tensor = context.retrieval.attend(self, x)
        return mixed

    def read(self, x: Tensor, neighbors: KeyValue, mask: Tensor) -> Tensor:
        """Attend from r t d to the tokens of neighbors, where `mask` (r s) is True: r t d."""
        dropout_p = self.dropout if self.training else 0.0
        heads = compute_attention(self._query(x), *neighbors, mask[:, None, None], dropout_p)
        return self.out(heads)


class NeighborEncoder(nn.Module):
    """Bidirectional blocks that read a neighbor, and attend to the chunk that retrieved it."""

    def __init__(
        self, blocks: Sequence[Block], norm: LayerNorm, *, max_positions: int, dropout: float
    ) -> None:
        super().__init__()
        self.position = nn.Embedding(max_positions, norm.normalized_shape[0])
        self.dropout = Dropout(dropout)
        self.blocks = BlockList(blocks)
        self.norm = norm

    def forward(self, x: Tensor, mask: Tensor, states: Tensor) -> Tensor:
        """Encode embedded neighbors (r k l d, mask r k l) of chunks with states r m d."""
        count, neighbors, length, _ = x.shape
        # a missing neighbor attends to its padding, as softmax over nothing is NaN; nobody reads it
        visible = mask | ~mask.any(-1, keepdim=True)
        context = AttentionContext(
            visible.flatten(0, 1), max_seqlen=length, device=x.device, encoder_states=states
        )
        self.blocks.prepare(context)
        positions = torch.arange(length, device=x.device)
        x = self.dropout(x + self.position(positions)).flatten(0, 1)  # (r k) l d
        for block in self.blocks:
            x = block(x, context)
        return self.norm(x).reshape(count, neighbors * length, -1)


class SequenceRetrieval:
    """What the blocks of one pass over whole sequences read: the neighbors of all chunks.

    The first chunked cross-attention encodes them, with the states that it reads itself.
    """

    def __init__(self, encode: Encode, neighbors: ChunkNeighbors) -> None:
        self.neighbors = neighbors
        self.states: Tensor | None = None  # n d
        self.encoded: Tensor | None = None  # r (k l) d
        self._encode = encode
        found = neighbors.mask.flatten(1)  # r (k l)
        self._is_empty = ~found.any(1, keepdim=True)  # r 1: no neighbor was found
        self._mask = found | self._is_empty

    def attend(self, attention: ChunkedCrossAttention, x: Tensor) -> Tensor:
        """The output of one layer at every position, in the shape of x."""
        flat, chunks = x.reshape(-1, x.shape[-1]), self.neighbors
        if self.states is None:
            self.states = flat
        if not len(chunks.ids):
            return torch.zeros_like(x)
        if self.encoded is None:
            self.encoded = self._encode(chunks.ids, chunks.mask, flat[chunks.tokens])
        queries = flat[chunks.readers.clamp(max=len(flat) - 1)]  # r m d
        mixed = attention.read(queries, attention.project_encoder(self.encoded), self._mask)
        mixed = mixed.masked_fill(self._is_empty[..., None], 0.0)
        # positions after the end of a sequence are written to one more row, which is left out
        out = mixed.new_zeros(len(flat) + 1, mixed.shape[-1])
        out = out.index_copy(0, chunks.readers.flatten(), mixed.flatten(0, 1))
        return out[:-1].reshape(x.shape)


@dataclass(frozen=True, kw_only=True)
class RetrievalCache:
    """What decoding one token after another keeps of retrieval, for b rows."""

    states: Tensor  # b m d: of the tokens of the current chunk, as the first layer reads them
    key_values: tuple[KeyValue, ...]  # by layer, of the neighbors that are read now: b (k l) h d
    mask: Tensor  # b (k l), True everywhere if a row reads nothing
    has_neighbors: Tensor  # b

    def reorder(self, rows: Tensor) -> "RetrievalCache":
        """The cache of these rows."""
        return RetrievalCache(
            states=self.states[rows],
            key_values=tuple(one.select(rows) for one in self.key_values),
            mask=self.mask[rows],
            has_neighbors=self.has_neighbors[rows],
        )


class StepRetrieval:
    """What the blocks of one decoding step read; rows whose chunk ends read its neighbors first."""

    def __init__(
        self,
        encode: Encode,
        cache: RetrievalCache,
        slots: Tensor,
        ending: tuple[Tensor, Tensor, Tensor] | None,
    ) -> None:
        """`slots` (b): the number of the new token in its chunk, from 0.

        `ending`: the rows whose chunk ends with the new token (c), and ids and mask (c k l) of its
        neighbors.
        """
        self.cache = cache  # after the step, the next one
        self._encode, self._slots, self._ending = encode, slots, ending
        self._encoded: Tensor | None = None
        self._layer = 0

    def attend(self, attention: ChunkedCrossAttention, x: Tensor) -> Tensor:
        """The output of one layer for the new token of each row: b 1 d."""
        if self._layer == 0:
            self._read_states(x)
        layer, self._layer = self._layer, self._layer + 1
        if self._encoded is not None and self._ending is not None:
            rows, new = self._ending[0], attention.project_encoder(self._encoded)
            pairs = zip(self.cache.key_values[layer], new, strict=True)
            key_value = KeyValue(*(old.index_copy(0, rows, one) for old, one in pairs))
            all_ = self.cache.key_values
            self.cache = replace(
                self.cache, key_values=(*all_[:layer], key_value, *all_[layer + 1 :])
            )
        cache = self.cache
        mixed = attention.read(x, cache.key_values[layer], cache.mask)
        return mixed.masked_fill(~cache.has_neighbors[:, None, None], 0.0)

    def _read_states(self, x: Tensor) -> None:
        """Keep the states of the new tokens, and encode the neighbors of chunks that end."""
        rows = torch.arange(len(x), device=x.device)
        states = self.cache.states.index_put((rows, self._slots), x[:, 0])
        self.cache = replace(self.cache, states=states)
        if self._ending is not None:
            ending, ids, mask = self._ending
            self._encoded = self._encode(ids, mask, states[ending])
            found = mask.flatten(1)
            has_any = found.any(1)
            self.cache = replace(
                self.cache,
                mask=self.cache.mask.index_copy(0, ending, found | ~has_any[:, None]),
                has_neighbors=self.cache.has_neighbors.index_copy(0, ending, has_any),
            )
