"""Kernels of a decoding step: one token of each of a few rows.

A linear layer with the norm before it and the activation or residual after it is one kernel, and so
is attention to a cache, so a block of a GPT-2 is five kernels. Each reads its weights once; what
several programs need (the vectors of a few rows) is small enough for them to compute it again.

b rows, k inputs, n outputs, c capacity of the cache, h heads, d head size.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

MAX_ROWS = 4  # for more, the matrix products of torch are as good
ACTIVATIONS = {"none": 0, "gelu_tanh": 1, "gelu": 2, "relu": 3}


class LinearTile(NamedTuple):
    """What a program of a linear layer computes; `python bench/tiles.py decode` times others."""

    outputs: int
    part: int  # inputs that are read at a time
    warps: int


class AttentionTile(NamedTuple):
    """What a program of attention reads at a time."""

    keys: int
    warps: int


LINEAR = LinearTile(4, 2048, 4)
ATTENTION = AttentionTile(128, 4)
HAS_EARLY_START = hasattr(tl.extra.cuda, "gdc_wait")
_HOPPER = (9, 0)


@triton.jit
def _append(parts, part):
    return parts + (part,)  # noqa: RUF005 (Triton has no *)


@triton.jit
def _activate(y, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        return y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    elif ACTIVATION == 2:  # noqa: PLR2004, RET505 (chosen when it is compiled)
        return 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    elif ACTIVATION == 3:  # noqa: PLR2004
        return tl.maximum(y, 0.0)
    else:
        return y


@triton.jit
def _compute_statistics(x, eps, K: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of a row and the factor that makes its variance 1."""
    columns = tl.arange(0, BLOCK)
    z = tl.load(x + columns, columns < K, 0.0).to(tl.float32)
    mean = tl.sum(z, 0) / K
    centred = tl.where(columns < K, z - mean, 0.0)
    return mean, 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / K + eps)


@triton.jit
def _linear_kernel(  # noqa: C901 (branches are chosen when it is compiled)
    x, weight, bias, norm_weight, norm_bias, residual, out, n, eps,
    ROWS: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr,
    OUTPUTS: tl.constexpr, HAS_NORM: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr, IS_EARLY: tl.constexpr,
):  # fmt: skip
    if IS_EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    real = outputs < n
    dtype = out.dtype.element_ty
    at = outputs.to(tl.int64)[:, None] * K
    part = tl.arange(0, PART)
    # loaded before anything else, and then one part ahead
    w = tl.load(weight + at + part[None, :], real[:, None] & (part < K)[None, :], 0.0)
    if IS_EARLY:  # only the weights do not depend on the kernel before
        tl.extra.cuda.gdc_wait()
    means, scales, totals = (), (), ()
    for first_row in tl.static_range(ROWS):
        totals = _append(totals, tl.zeros((OUTPUTS,), tl.float32))
        if HAS_NORM:
            mean, scale = _compute_statistics(x + first_row * K, eps, K, BLOCK)
            means, scales = _append(means, mean), _append(scales, scale)
    for start in range(0, K, PART):
        columns = start + part
        following = columns + PART
        w_next = tl.load(
            weight + at + following[None, :], real[:, None] & (following < K)[None, :], 0.0
        )
        more_totals = ()
        for row in tl.static_range(ROWS):
            v = tl.load(x + row * K + columns, columns < K, 0.0).to(tl.float32)
            if HAS_NORM:
                gain = tl.load(norm_weight + columns, columns < K, 0.0).to(tl.float32)
                shift = tl.load(norm_bias + columns, columns < K, 0.0).to(tl.float32)
                v = ((v - means[row]) * scales[row] * gain + shift).to(dtype).to(tl.float32)
            dot = tl.sum(w.to(tl.float32) * v[None, :], 1)
            more_totals = _append(more_totals, totals[row] + dot)
        totals = more_totals
        w = w_next
    for last_row in tl.static_range(ROWS):
        added = tl.zeros((OUTPUTS,), tl.float32)
        if HAS_BIAS:
            added += tl.load(bias + outputs, real, 0.0).to(tl.float32)
        # rounded as if it were stored between the operations
        y = _activate((totals[last_row] + added).to(dtype).to(tl.float32), ACTIVATION)
        target = last_row * n + outputs
        if HAS_RESIDUAL:
            y += tl.load(residual + target, real, 0.0).to(tl.float32)
        tl.store(out + target, y.to(dtype), real)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    norm: nn.LayerNorm | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """Residual + activation(W·norm(x) + bias): b k -> b n."""
    rows, inputs = x.shape
    out = x.new_empty(rows, len(weight))
    _linear_kernel[(triton.cdiv(len(weight), LINEAR.outputs),)](
        *(x, weight, x if bias is None else bias),
        *((x, x) if norm is None else (norm.weight, norm.bias)),
        *(x if residual is None else residual, out, len(weight)),
        *(0.0 if norm is None else norm.eps,),
        ROWS=rows,
        K=inputs,
        BLOCK=triton.next_power_of_2(inputs),
        PART=min(triton.next_power_of_2(inputs), LINEAR.part),
        OUTPUTS=LINEAR.outputs,
        HAS_NORM=norm is not None,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        ACTIVATION=ACTIVATIONS[activation],
        num_warps=LINEAR.warps,
        **_early_start(x.device),
    )
    return out


@triton.jit
def _attention_kernel(
    qkv, keys, values, slot, mask, out, capacity, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr,
    IS_EARLY: tl.constexpr,
):  # fmt: skip
    if IS_EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    own = qkv + row * 3 * HEADS * WIDTH + head * WIDTH + columns
    query = tl.load(own, inside, 0.0).to(tl.float32) * scale
    key = tl.load(own + HEADS * WIDTH, inside, 0.0)
    value = tl.load(own + 2 * HEADS * WIDTH, inside, 0.0)
    length = tl.load(slot).to(tl.int32)
    first = row * capacity * HEADS * WIDTH + head * WIDTH
    own_slot = first + length.to(tl.int64) * HEADS * WIDTH + columns
    tl.store(keys + own_slot, key, inside)
    tl.store(values + own_slot, value, inside)
    # the new token itself, then those before it
    largest = tl.sum(query * key.to(tl.float32), 0)
    total = tl.exp(largest - largest)
    mixed = value.to(tl.float32)
    for start in range(0, length, KEYS):
        at = start + tl.arange(0, KEYS)
        seen = at < length
        seen = seen & (tl.load(mask + row * capacity + at, seen, 0) != 0)
        place = first + at[:, None].to(tl.int64) * HEADS * WIDTH + columns[None, :]
        loaded = seen[:, None] & inside[None, :]
        k = tl.load(keys + place, loaded, 0.0).to(tl.float32)
        v = tl.load(values + place, loaded, 0.0).to(tl.float32)
        scores = tl.where(seen, tl.sum(k * query[None, :], 1), float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 0))
        weights, factor = tl.exp(scores - larger), tl.exp(largest - larger)
        mixed = mixed * factor + tl.sum(weights[:, None] * v, 0)
        total = total * factor + tl.sum(weights, 0)
        largest = larger
    tl.store(
        out + row * HEADS * WIDTH + head * WIDTH + columns,
        (mixed / total).to(out.dtype.element_ty),
        inside,
    )


def attention(qkv: Tensor, kv: Tensor, slot: Tensor, mask: Tensor) -> Tensor:
    """The concatenated heads of one token of each row, whose key and value are written to `slot`.

    Args:
        qkv: query, key and value of the token, b (3 h d).
        kv: the cache, 2 b c h d; slots before `slot` are attended to where `mask` is True.
        slot: one integer on the device.
        mask: b c.
    """
    _, rows, capacity, heads, width = kv.shape
    out = qkv.new_empty(rows, heads * width)
    _attention_kernel[(rows, heads)](
        *(qkv, kv[0], kv[1], slot, mask.view(torch.uint8), out, capacity, width**-0.5),
        HEADS=heads,
        WIDTH=width,
        BLOCK=triton.next_power_of_2(width),
        KEYS=ATTENTION.keys,
        num_warps=ATTENTION.warps,
        **_early_start(qkv.device),
    )
    return out


@cache
def _early_start(device: torch.device) -> dict[str, bool]:
    """Options of a kernel that starts while the kernel before it runs, and loads its weights.

    It then waits for that kernel (programmatic dependent launch, from Hopper on). Every kernel
    waits, so the kernels before that one have ended, too.
    """
    is_early = (
        HAS_EARLY_START
        and device.type == "cuda"
        and torch.version.hip is None  # whose capabilities are other numbers
        and torch.cuda.get_device_capability(device) >= _HOPPER
    )
    return {"IS_EARLY": is_early, **({"launch_pdl": True} if is_early else {})}
