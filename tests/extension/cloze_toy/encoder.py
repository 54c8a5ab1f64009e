"""An encoder with parallel blocks.  t tokens, d width."""

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor

from cloze.config import one_of
from cloze.nn.attention import Attention, KVCache
from cloze.nn.block import Block, FeedForward
from cloze.nn.context import AttentionContext
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LinearHead, MLMHead, TaskHead
from cloze.nn.layers import ACTIVATIONS, LayerNorm
from cloze_toy.configs import ToyEncoderConfig


class ParallelBlock(Block):
    """x + c · (Attention(norm(x)) + FFN(norm(x)))."""

    def __init__(self, config: ToyEncoderConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.norm = LayerNorm(size, eps=config.norm_eps)
        self.attention = Attention(size, config.num_heads, config.attention_dropout)
        self.cross_attention = None
        self.ffn = FeedForward(size, config.intermediate_size, ACTIVATIONS[config.activation])
        self.scale = config.residual_scale

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        normed = self.norm(x)
        return x + self.scale * (self.attention(normed, context, cache) + self.ffn(normed))


class ToyEncoder(Encoder):
    """Token and position embeddings, parallel blocks, a norm."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ("mlm", "sequence", "token")
    embeddings: Embeddings

    def __init__(self, config: ToyEncoderConfig, task_heads: Iterable[str] = ()) -> None:
        super().__init__(
            Embeddings(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                max_positions=config.max_positions,
                type_vocab_size=0,
                dropout=config.dropout,
                norm_eps=config.norm_eps,
            ),
            (ParallelBlock(config) for _ in range(config.num_layers)),
            max_positions=config.max_positions,
            norm=LayerNorm(config.hidden_size, eps=config.norm_eps),
            task_heads={
                one_of("head", name, self.TASK_HEADS): _head(name, config) for name in task_heads
            },
        )
        self.config = config


def _head(name: str, config: ToyEncoderConfig) -> TaskHead:
    if name == "mlm":
        return MLMHead(
            config.hidden_size,
            config.vocab_size,
            ACTIVATIONS[config.activation],
            norm_eps=config.norm_eps,
            tied=config.tie_embeddings,
        )
    return LinearHead(
        config.hidden_size, len(config.labels), dropout=config.dropout, uses_pooler=False
    )
