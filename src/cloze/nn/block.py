"""The repeating unit of encoders and decoders.  t any leading axes, d width, f inner width."""

from collections.abc import Iterable, Iterator
from typing import cast

from torch import Tensor, nn

from cloze.nn.attention import Attention, CrossAttention, KVCache
from cloze.nn.context import AttentionContext
from cloze.nn.layers import Activation, Dropout, LayerNorm


class FeedForward(nn.Module):
    """down(activation(up(x))), the same at every position.  Vaswani et al. 2017, eq. 2."""

    def __init__(
        self, hidden_size: int, intermediate_size: int, activation: Activation, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.activation = activation
        self.down = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.expand(x))  # t d -> t f -> t d

    def expand(self, x: Tensor) -> Tensor:
        """activation(up(x)), before `down`: t d -> t f."""
        return self.activation(self.up(x))


class GatedFeedForward(FeedForward):
    """down(activation(Ax) · Bx), with A above B in one matrix.  Shazeer 2020, eq. 6 (GEGLU)."""

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: Activation,
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(hidden_size, intermediate_size, activation, bias=bias)
        self.up = nn.Linear(hidden_size, 2 * intermediate_size, bias=bias)
        self.dropout = Dropout(dropout)

    def expand(self, x: Tensor) -> Tensor:
        """The gated unit, before `down`: t d -> t f."""
        value, gate = self.up(x).chunk(2, -1)
        return self.dropout(self.activation(value) * gate)


class Block(nn.Module):
    """Self-attention, in a decoder attention to the encoder, then the feed-forward net."""

    attention: Attention
    cross_attention: CrossAttention | None
    ffn: FeedForward

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        """T d -> t d; with a `cache` the next tokens alone, which attend to those before them."""
        raise NotImplementedError


class PostNormBlock(Block):
    """LayerNorm(x + Sublayer(x)) for each sub-layer.  Vaswani et al. 2017, §3.1."""

    def __init__(
        self,
        attention: Attention,
        ffn: FeedForward,
        *,
        dropout: float,
        norm_eps: float,
        cross_attention: CrossAttention | None = None,
    ) -> None:
        super().__init__()
        width = attention.out.out_features
        self.attention = attention
        self.attention_norm = LayerNorm(width, eps=norm_eps)
        self.cross_attention = cross_attention
        if cross_attention is not None:
            self.cross_attention_norm = LayerNorm(width, eps=norm_eps)
        self.ffn = ffn
        self.ffn_norm = LayerNorm(width, eps=norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, context, cache)))
        if self.cross_attention is not None:
            mixed = self.cross_attention(x, context, cache)
            x = self.cross_attention_norm(x + self.dropout(mixed))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))


class PreNormBlock(Block):
    """x + Sublayer(norm(x)) for each sub-layer.

    Xiong et al. 2020, fig. 1b: no norm lies on the residual path, so gradients reach the lowest
    layer unchanged and the learning rate needs little warm-up.
    """

    def __init__(  # noqa: PLR0913 (its parts, all by keyword)
        self,
        attention: Attention,
        ffn: FeedForward,
        *,
        attention_norm: nn.Module,
        ffn_norm: nn.Module,
        dropout: float,
        ffn_dropout: float,
        cross_attention: CrossAttention | None = None,
        cross_attention_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        if cross_attention_norm is not None:
            self.cross_attention_norm = cross_attention_norm
        self.cross_attention = cross_attention
        self.ffn_norm = ffn_norm
        self.ffn = ffn
        self.dropout = Dropout(dropout)
        self.ffn_dropout = Dropout(ffn_dropout)

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), context, cache))
        if self.cross_attention is not None:
            mixed = self.cross_attention(self.cross_attention_norm(x), context, cache)
            x = x + self.dropout(mixed)
        return x + self.ffn_dropout(self.ffn(self.ffn_norm(x)))


class BlockList(nn.ModuleList):
    """The blocks of a model, from the lowest to the highest."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        super().__init__(blocks)

    def __iter__(self) -> Iterator[Block]:
        return cast("Iterator[Block]", super().__iter__())

    def prepare(self, context: AttentionContext) -> None:
        """Compute every mask and rotary table that the blocks will read from the context."""
        for block in self:
            block.attention.prepare(context)
