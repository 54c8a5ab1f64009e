"""Replace the blocks of a model by ones that call our GPU kernels, and back.

A fused module has the same parameters, buffers, names and hooks as the plain one. At every call it
uses a kernel if there is one for dtype and length, and otherwise computes what the plain module
does, so fusing a model is always safe. Fuse before compilation, distributed wrapping and the
optimizer are set up.
"""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn import kernels
from cloze.nn.attention import Attention, KVCache, RotaryAttention
from cloze.nn.block import FeedForward, GatedFeedForward, PostNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.layers import Dropout, LayerNorm, draw_seed
from cloze.nn.layout import Varlen

M = TypeVar("M", bound=nn.Module)


def fuse(model: M) -> M:
    """Replace the classes of a model's modules, in place, so that they call our kernels."""
    return _swap_classes(model, FUSED)


def unfuse(model: M) -> M:
    """Undo `fuse`, in place."""
    return _swap_classes(model, {fused: plain for plain, fused in FUSED.items()})


def move_to_device(model: M, device: torch.device, dtype: torch.dtype | None = None) -> M:
    """Move a model; it is fused on a CUDA device, and plain elsewhere."""
    return (fuse if device.type == "cuda" else unfuse)(model.to(device=device, dtype=dtype))


def _swap_classes(model: M, table: Mapping[type[nn.Module], type[nn.Module]]) -> M:
    for module in model.modules():
        if type(module) in table:
            module.__class__ = table[type(module)]
    return model


class FusedAttention(Attention):
    """Attention over `Varlen` rows in one kernel, which rotates queries and keys itself."""

    def attend(
        self, qkv: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> Tensor:
        layout = context.layout
        if not isinstance(layout, Varlen) or not kernels.can_attend(qkv, layout.max_seqlen):
            return super().attend(qkv, context, cache)
        reach = context.reach(self.window_size)
        return kernels.get_operator("attention")(
            *(qkv, layout.cu_seqlens, *self.angles(qkv, context)),
            draw_seed(qkv) if self.training else layout.cu_seqlens,  # only dropout reads it
            *(layout.max_seqlen, layout.max_seqlen if reach is None else reach),
            *(self.dropout if self.training else 0.0, context.is_causal),
        )[0].flatten(-2)

    def angles(self, qkv: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Cosines and sines of the positions of a sequence; empty without rotary positions."""
        return qkv.new_empty(0), qkv.new_empty(0)


class FusedRotaryAttention(FusedAttention, RotaryAttention):
    """The same with rotary positions."""

    def prepare(self, context: AttentionContext) -> None:
        """Compute the tables ahead; the kernel indexes its table by position, not by token."""
        head_size = self.out.in_features // self.num_heads
        if isinstance(context.layout, Varlen) and kernels.can_fit(head_size, context.max_seqlen):
            self.rotary_table(context, by_token=False)
        else:
            super().prepare(context)

    def angles(self, qkv: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return self.rotary_table(context, by_token=False)


class FusedFeedForward(FeedForward):
    """GELU in one kernel, which adds the bias before it and computes the bias's gradient."""

    def expand(self, x: Tensor) -> Tensor:
        if self.activation is not F.gelu or not kernels.is_supported(x):
            return super().expand(x)
        return kernels.get_operator("gelu")(F.linear(x, self.up.weight), self.up.bias, gated=False)


class FusedGatedFeedForward(GatedFeedForward):
    """The gated unit in one kernel."""

    def expand(self, x: Tensor) -> Tensor:
        if self.activation is not F.gelu or not kernels.is_supported(x):
            return super().expand(x)
        gated = kernels.get_operator("gelu")(F.linear(x, self.up.weight), self.up.bias, gated=True)
        return self.dropout(gated)


class FusedPostNormBlock(PostNormBlock):
    """LayerNorm(x + dropout(y)) in one kernel."""

    def forward(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        if self.training and kernels.is_supported(x):
            return self._forward_training(x, context, cache)
        if isinstance(context.layout, Varlen) and not self.training:
            return self._forward_varlen(x, context, context.layout.cu_seqlens)
        x = add_norm(x, self.attention(x, context, cache), self.attention_norm, self.dropout)
        if self.cross_attention is not None:
            mixed = self.cross_attention(x, context, cache)
            x = add_norm(x, mixed, self.cross_attention_norm, self.dropout)
        return add_norm(x, self.ffn(x), self.ffn_norm, self.dropout)

    def _forward_varlen(self, x: Tensor, context: AttentionContext, seed: Tensor) -> Tensor:
        """The same without dropout, which would read the seed."""
        x = add_norm_without_dropout(x, self.attention(x, context), self.attention_norm, seed)[0]
        return add_norm_without_dropout(x, self.ffn(x), self.ffn_norm, seed)[0]

    def _forward_training(
        self, x: Tensor, context: AttentionContext, cache: KVCache | None
    ) -> Tensor:
        """The same; the kernel also computes the bias gradients of the last projections."""
        attention, cross_attention, ffn = self.attention, self.cross_attention, self.ffn
        mixed = attention.compute_heads(x, context, cache)
        x = linear_add_norm(x, mixed, attention.out, self.attention_norm, self.dropout)
        if cross_attention is not None:
            mixed = cross_attention.compute_heads(x, context, cache)
            x = linear_add_norm(
                x, mixed, cross_attention.out, self.cross_attention_norm, self.dropout
            )
        return linear_add_norm(x, ffn.expand(x), ffn.down, self.ffn_norm, self.dropout)


FUSED: Mapping[type[nn.Module], type[nn.Module]] = {
    Attention: FusedAttention,
    RotaryAttention: FusedRotaryAttention,
    FeedForward: FusedFeedForward,
    GatedFeedForward: FusedGatedFeedForward,
    PostNormBlock: FusedPostNormBlock,
}


def add_norm(x: Tensor, y: Tensor, norm: LayerNorm, dropout: Dropout) -> Tensor:
    """norm(x + dropout(y))."""
    if not kernels.is_supported(x, y):
        return norm(x + dropout(y))
    return _add_norm(x, y, norm, dropout, None)


def add_norm_without_dropout(
    x: Tensor, y: Tensor, norm: nn.Module, seed: Tensor, zeros: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """norm(x + y) and x + y; `zeros` are in place of the bias of a norm without one."""
    bias = getattr(norm, "bias", None)
    bias = zeros if bias is None else bias
    if not isinstance(norm, LayerNorm) or bias is None or not kernels.is_supported(x, y):
        x = x + y
        return norm(x), x
    compute = kernels.get_operator("add_norm")
    found = compute(x, y, norm.weight, bias, seed, None, norm.eps, 0.0)
    return found[0], found[1]


def linear_add_norm(
    x: Tensor, y: Tensor, linear: nn.Linear, norm: LayerNorm, dropout: Dropout
) -> Tensor:
    """norm(x + dropout(linear(y))).

    The kernel computes the gradient of the linear layer's bias, which by itself would read all of
    its output's gradient once more.
    """
    if not kernels.is_supported(x, y):
        return norm(x + dropout(linear(y)))
    bias: Tensor | None = linear.bias
    y = F.linear(y, linear.weight, None if bias is None else bias.detach())
    return _add_norm(x, y, norm, dropout, bias)


def _add_norm(
    x: Tensor, y: Tensor, norm: LayerNorm, dropout: Dropout, bias: Tensor | None
) -> Tensor:
    p = dropout.p if dropout.training else 0.0
    compute = kernels.get_operator("add_norm")
    return compute(x, y, norm.weight, norm.bias, draw_seed(x), bias, norm.eps, p)[0]
