"""RETRO: a GPT-2 whose chunks read the neighbors of the chunk before them.

Borgeaud et al. 2021. Every third block, from the 6th or the 9th on, has a chunked cross-attention
between self-attention and feed-forward net. It reads neighbors from a database: chunks that are
similar to the one before, and their continuations. An encoder of two blocks reads the neighbors,
and attends to the decoder's states of the chunk that retrieved them.

Deviations: positions are learned and norms are LayerNorms, as in GPT-2; the neighbor encoder has
the width of the decoder and shares its token embeddings.
"""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from cloze.config import one_of
from cloze.models.configs.retro import RetroConfig
from cloze.nn.attention import Attention, CrossAttention
from cloze.nn.block import Block, FeedForward, PreNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LMHead
from cloze.nn.layers import ACTIVATIONS, LayerNorm
from cloze.nn.layout import AttentionLayout
from cloze.nn.retrieval import (
    ChunkedCrossAttention,
    ChunkNeighbors,
    NeighborEncoder,
    SequenceRetrieval,
    StepRetrieval,
)


class Retro(Encoder):
    """Token and position embeddings, pre-norm blocks with a causal mask, a neighbor encoder."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = RetroConfig.TASK_HEADS
    is_causal = True

    def __init__(self, config: RetroConfig, task_heads: Iterable[str] = ()) -> None:
        size = config.hidden_size
        super().__init__(
            Embeddings(
                vocab_size=config.vocab_size,
                hidden_size=size,
                max_positions=config.max_positions,
                type_vocab_size=0,
                dropout=config.embedding_dropout,
                norm_eps=None,
            ),
            (
                _build_block(
                    config, ChunkedCrossAttention if layer in config.retrieval_layers else None
                )
                for layer in range(1, config.num_layers + 1)
            ),
            max_positions=config.max_positions,
            norm=LayerNorm(size, eps=config.norm_eps),
            task_heads={
                one_of("head", name, self.TASK_HEADS): LMHead(
                    size, config.vocab_size, tied=config.tie_embeddings, bias=False
                )
                for name in task_heads
            },
        )
        self.neighbor_encoder = NeighborEncoder(
            [_build_block(config, CrossAttention) for _ in range(config.neighbor_layers)],
            LayerNorm(size, eps=config.norm_eps),
            max_positions=config.neighbor_length,
            dropout=config.embedding_dropout,
        )
        self.config = config

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout = None,
        token_type_ids: Tensor | None = None,
        neighbors: ChunkNeighbors | None = None,
    ) -> Tensor:
        """The last layer, b t d or n d; without neighbors it is that of the plain decoder."""
        retrieval = None if neighbors is None else self.retrieve(neighbors)
        context = self.make_context(input_ids, attention_mask, retrieval)
        x = self.embeddings(input_ids, token_type_ids, context.position_ids)
        for block in self.blocks:
            x = block(x, context)
        return self.norm(x)

    def make_context(
        self,
        input_ids: Tensor,
        attention_mask: AttentionLayout,
        retrieval: SequenceRetrieval | StepRetrieval | None = None,
    ) -> AttentionContext:
        """The context of all blocks, with what they read of neighbors."""
        context = super().make_context(input_ids, attention_mask)
        context.retrieval = retrieval
        return context

    def retrieve(self, neighbors: ChunkNeighbors) -> SequenceRetrieval:
        """What the blocks of one pass read."""
        return SequenceRetrieval(self.encode_neighbors, neighbors)

    def encode_neighbors(self, ids: Tensor, mask: Tensor, states: Tensor) -> Tensor:
        """Encode neighbors (r k l) of chunks whose states are r m d: r (k l) d."""
        encoded: Tensor = self.neighbor_encoder(self.embeddings.word(ids), mask, states)
        return encoded

    @property
    def retrieval_attentions(self) -> list[ChunkedCrossAttention]:
        """The layers that read neighbors, from the lowest."""
        found = (block.cross_attention for block in self.blocks)
        return [one for one in found if isinstance(one, ChunkedCrossAttention)]

    @staticmethod
    def is_retrieval_weight(name: str) -> bool:
        """Whether a parameter belongs to retrieval, not to the decoder that RETROfit freezes."""
        return name.startswith("neighbor_encoder.") or "cross_attention" in name

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Like other encoders, but the last matrices of sub-layers are scaled by 1/√(2·layers)."""
        super().init_weights(init_std, rng)
        self.scale_residual_weights()


def _build_block(config: RetroConfig, cross_attention: type[CrossAttention] | None) -> Block:
    size, heads, dropout = config.hidden_size, config.num_heads, config.attention_dropout
    has_cross = cross_attention is not None
    return PreNormBlock(
        Attention(size, heads, dropout),
        FeedForward(size, config.intermediate_size, ACTIVATIONS[config.activation]),
        attention_norm=LayerNorm(size, eps=config.norm_eps),
        cross_attention=cross_attention(size, heads, dropout) if cross_attention else None,
        cross_attention_norm=LayerNorm(size, eps=config.norm_eps) if has_cross else None,
        ffn_norm=LayerNorm(size, eps=config.norm_eps),
        dropout=config.dropout,
        ffn_dropout=config.dropout,
    )
