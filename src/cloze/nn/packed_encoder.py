"""Encoders on a CPU with packed weights, in float32, bfloat16 or 8-bit integers.

The blocks compute what the plain ones do, without dropout, on a flat row of sequences. Their
matrices are packed once, in the block layout of oneDNN's kernels, or quantized. Attention over
short sequences is two batched products and a softmax, which is faster than torch's fused kernel
there.

Rows are padded to one of a few numbers of tokens: oneDNN compiles a kernel for each number, which
takes as long as some tokens, and keeps about 0.4 MB for it.

n tokens, b sequences, t tokens of one, h heads, d head size.
"""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.attention import Attention, RotaryAttention
from cloze.nn.block import GatedFeedForward
from cloze.nn.context import AttentionContext
from cloze.nn.encoder import Encoder
from cloze.nn.int8 import LOWEST, Int8Linear, measure_input_ranges
from cloze.nn.layout import Packed
from cloze.nn.packed import (
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
_PACKING = Lock()  # threads that compute batches of one module pack it once


class PackedEncoder:
    """The layers of an encoder, computed with packed copies of its matrices."""

    def __init__(self, module: Encoder, precision: Precision) -> None:
        self._precision = precision
        self._weights = _identify_weights(module)
        make = _make_int8_packer if precision == "int8" else _make_packer
        pack = make(module)
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
        context, count = module.make_context(input_ids, packed), len(input_ids)
        x = module.embeddings(input_ids, token_type_ids, context.position_ids)
        x = F.pad(x, (0, 0, 0, round_up_rows(count) - count))
        for packed_block, block in zip(self._blocks, module.blocks, strict=True):
            yield x[:count]
            x = packed_block(block, x, context)
        yield module.norm(x[:count])

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of a model has no packed weights."""
        return type(None), ()


def round_up_rows(count: int) -> int:
    """The padded number of tokens of a row: at most an eighth more, or 16."""
    step = 1 << max(4, (count - 1).bit_length() - 4)
    return -(-count // step) * step


def _make_packer(_: Encoder) -> Callable[[nn.Linear], PackedLinear]:
    return lambda linear: PackedLinear(linear.weight, linear.bias, _ROWS)


def _make_int8_packer(module: Encoder) -> Callable[[nn.Linear], Int8Linear]:
    measured = measure_input_ranges(module)
    lowest = {
        block.ffn.down: LOWEST.get(block.ffn.activation)
        for block in module.blocks
        if not isinstance(block.ffn, GatedFeedForward)
    }
    return lambda linear: Int8Linear(
        linear.weight, linear.bias, measured.get(linear), lowest.get(linear)
    )


def attend_runs(attention: Attention, qkv: Tensor, context: AttentionContext) -> Tensor:
    """The concatenated heads of a `Packed` row: n 3h d -> n (h d); rows after it are zero."""
    assert isinstance(context.layout, Packed)
    count = sum(context.layout.lengths)
    mixed = qkv.new_empty(len(qkv), attention.num_heads, qkv.shape[-1])
    mixed[count:] = 0
    qkv = qkv[:count]
    if type(attention) is not Attention:  # queries and keys are rotated
        qkv = torch.cat(attention.split_qkv(qkv, context), 1)
    heads = attention.num_heads
    for start, count, length in context.layout.runs:
        rows = slice(start, start + count * length)
        parts = qkv[rows].view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)  # 3 b h t d
        mask = context.run_mask(length, attention.window_size)
        found = (
            _attend_short(parts)
            if mask is None and length <= _MAX_SHORT
            else F.scaled_dot_product_attention(parts[0], parts[1], parts[2], mask)
        )
        mixed[rows].view(count, length, heads, -1).copy_(found.transpose(1, 2))
    return mixed.flatten(1)


def _attend_short(parts: Tensor) -> Tensor:
    """softmax(QKᵀ/√d)·V, with all scores in memory: 3 b h t d -> b h t d."""
    _, count, heads, length, size = parts.shape
    query, key, value = parts.reshape(3, count * heads, length, size)
    scores = query.new_empty(count * heads, length, length)
    torch.baddbmm(scores, query, key.mT, beta=0, alpha=size**-0.5, out=scores)
    return torch.bmm(scores.softmax(-1), value).view(count, heads, length, size)


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
    with _PACKING:
        return _pack_encoder(module, tokens, precision)


def _pack_encoder(module: Encoder, tokens: int, precision: Precision) -> PackedEncoder | None:
    kept: PackedEncoder | None = module.__dict__.get("_packed_encoder")
    if kept is not None and kept.is_valid(module, precision):  # by another thread
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
