"""Encoders on a CPU with packed weights, in float32, bfloat16 or 8-bit integers.

The blocks compute what the plain ones do, without dropout, on a flat row of sequences. Their
matrices are packed once, in the block layout of oneDNN's kernels, or quantized. Attention over
short sequences is two batched products and a softmax, which is faster than torch's fused kernel
there.

n tokens, b sequences, t tokens of one, h heads, d head size.
"""

from collections.abc import Iterator
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from cloze.nn.attention import Attention, RotaryAttention, compute_attention
from cloze.nn.context import AttentionContext
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed
from cloze.nn.packed import (
    Int8Linear,
    PackedBlock,
    PackedLinear,
    can_pack_weights,
    has_hooks,
    identify_weight,
    is_packable,
    list_linears,
)

Precision = Literal["float", "int8"]
_MIN_TOKENS = 1024  # that repay the packing
_ROWS = 512  # tokens of a typical batch, for which the layout of the weights is chosen
_MAX_SHORT = 64  # tokens of a sequence


class PackedEncoder:
    """The layers of an encoder, computed with packed copies of its matrices."""

    def __init__(self, module: Encoder, precision: Precision) -> None:
        self._precision = precision
        self._weights = _identify_weights(module)
        pack = Int8Linear if precision == "int8" else partial(PackedLinear, rows=_ROWS)
        self._blocks = [PackedBlock(block, pack, attend_runs) for block in module.blocks]

    def is_valid(self, module: Encoder, precision: Precision) -> bool:
        """Whether it was made for this precision and the weights that the model has now."""
        return self._precision == precision and self._weights == _identify_weights(module)

    def hidden_states(
        self,
        module: Encoder,
        input_ids: Tensor,
        packed: Packed,
        token_type_ids: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """As `Encoder.hidden_states`."""
        context = module.make_context(input_ids, packed)
        x = module.embeddings(input_ids, token_type_ids, context.position_ids)
        for packed_block, block in zip(self._blocks, module.blocks, strict=True):
            yield x
            x = packed_block(block, x, context)
        yield module.norm(x)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a model has no packed weights."""
        return type(None), ()


def attend_runs(attention: Attention, qkv: Tensor, context: AttentionContext) -> Tensor:
    """The concatenated heads of a `Packed` row: n 3h d -> n (h d)."""
    assert isinstance(context.layout, Packed)
    runs = context.layout.runs
    parts = attention.split_qkv(qkv, context)
    split = zip(*(part.split([c * t for _, c, t in runs]) for part in parts), strict=True)
    mixed = qkv.new_empty(len(qkv), parts[0].shape[1] * parts[0].shape[2])
    for run, (start, count, length) in zip(split, runs, strict=True):
        query, key, value = (part.unflatten(0, (count, length)) for part in run)  # b t h d
        mask = context.run_mask(length, attention.window_size)
        if mask is None and length <= _MAX_SHORT:
            heads = _attend_short(query, key, value)
        else:
            heads = compute_attention(query, key, value, mask, 0.0)
        mixed[start : start + count * length].view(count, length, -1).copy_(heads)
    return mixed


def _attend_short(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(QKᵀ/√d)·V of b t h d each, with all scores in memory: b t (h d)."""
    count, length, heads, size = query.shape
    query, key, value = (
        part.transpose(1, 2).reshape(count * heads, length, size) for part in (query, key, value)
    )
    scores = query.new_empty(count * heads, length, length)
    torch.baddbmm(scores, query, key.mT, beta=0, alpha=size**-0.5, out=scores)
    mixed = torch.bmm(scores.softmax(-1), value).view(count, heads, length, size)
    return mixed.transpose(1, 2).flatten(-2)


def get_packed_encoder(
    module: Encoder, tokens: int, precision: Precision = "float"
) -> PackedEncoder | None:
    """The packed encoder of a module, kept with it; None if its blocks must be called.

    Packing takes as long as some hundred tokens, so it waits until the module has computed more.
    """
    if any(map(has_hooks, module.blocks)) or not can_pack_blocks(module):
        return None
    kept: PackedEncoder | None = module.__dict__.get("_packed_encoder")
    if kept is not None and kept.is_valid(module, precision):
        return kept
    module.__dict__["_packed_encoder"] = None
    if precision == "float":
        seen = module.__dict__["_seen_tokens"] = module.__dict__.get("_seen_tokens", 0) + tokens
        weights = [one.weight for block in module.blocks for one in list_linears(block)]
        if seen < _MIN_TOKENS or not can_pack_weights(weights):
            return None
    made = module.__dict__["_packed_encoder"] = PackedEncoder(module, precision)
    return made


def can_pack_blocks(module: Encoder) -> bool:
    """Whether the blocks of a module compute what packed ones do."""
    return all(
        is_packable(block) and type(block.attention) in (Attention, RotaryAttention)
        for block in module.blocks
    )


def _identify_weights(module: Encoder) -> list[tuple[int, int]]:
    linears = [one for block in module.blocks for one in list_linears(block)]
    return [identify_weight(part) for one in linears for part in one.parameters(recurse=False)]
