"""A decoding step of a GPT-2 with our GPU kernels: five for each block.

b rows, l layers, c capacity of the cache, h heads, d head size, v vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn import kernels
from cloze.nn.attention import Attention
from cloze.nn.block import Block, FeedForward, PreNormBlock
from cloze.nn.encoder import Encoder
from cloze.nn.fuse import FusedAttention, FusedFeedForward
from cloze.nn.heads import LMHead
from cloze.nn.layers import ACTIVATIONS, Activation

DEVICES = {"cuda"}
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
_NAMES: Mapping[Activation, str] = {
    F.gelu: "gelu",
    ACTIVATIONS["gelu_new"]: "gelu_tanh",
    F.relu: "relu",
}


def can_fuse_step(model: Encoder, rows: int) -> bool:
    """Whether there are kernels for a step of this model with so many rows."""
    weight = model.embeddings.word.weight
    if not kernels.AVAILABLE or weight.device.type not in DEVICES:
        return False
    from cloze.nn.kernels import decode

    head = model.task_heads[model.lm_head or ""]
    return (
        rows <= decode.MAX_ROWS
        and weight.dtype in DTYPES
        and all(one.dtype == weight.dtype and one.is_contiguous() for one in model.parameters())
        and all(map(_has_kernels, model.blocks))
        and isinstance(model.norm, nn.LayerNorm)
        and type(head) is LMHead
    )


def _has_kernels(block: Block) -> bool:
    return (
        type(block) is PreNormBlock
        and isinstance(block.attention_norm, nn.LayerNorm)
        and isinstance(block.ffn_norm, nn.LayerNorm)
        and type(block.attention) in (Attention, FusedAttention)
        and block.attention.window_size is None
        and type(block.ffn) in (FeedForward, FusedFeedForward)
        and block.ffn.activation in _NAMES
    )


def compute_fused_step(model: Encoder, x: Tensor, kv: Tensor, slot: Tensor, mask: Tensor) -> Tensor:
    """Logits after one token of each row: b d -> b v.

    Args:
        model: a model with `can_fuse_step`.
        x: the embeddings of the tokens.
        kv: the cache, l 2 b c h d, to which the tokens are added at `slot`.
        slot: one integer on the device.
        mask: which slots are attended to, b c.
    """
    from cloze.nn.kernels.decode import attention, linear

    for block, cache in zip(model.blocks, kv, strict=True):
        assert isinstance(block, PreNormBlock)
        first, second, ffn = (
            _layer_norm(block.attention_norm),
            _layer_norm(block.ffn_norm),
            block.ffn,
        )
        qkv = linear(x, *_weights(block.attention.qkv), norm=first)
        heads = attention(qkv, cache, slot, mask)
        x = linear(heads, *_weights(block.attention.out), residual=x)
        name = _NAMES[ffn.activation]
        inner = linear(x, *_weights(ffn.up), norm=second, activation=name)
        x = linear(inner, *_weights(ffn.down), residual=x)
    head = model.task_heads[model.lm_head or ""]
    _, weight, bias = head.operands(x, model.embeddings.word.weight)  # type: ignore[operator]
    return linear(x, weight, bias, norm=_layer_norm(model.norm))


def _weights(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    return linear.weight, linear.bias


def _layer_norm(norm: Any) -> nn.LayerNorm:  # noqa: ANN401
    assert isinstance(norm, nn.LayerNorm)
    return norm
