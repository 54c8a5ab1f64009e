"""Attention within the sequences of a flat row, forward and backward.

Flash attention (Dao 2023) for `Varlen` rows: queries, keys and values are read from the output of
the projection and rotated on the chip, and their gradients are written into one tensor.
Dropout is drawn again in the backward pass, so only the output and the log-sum-exp of each row are
saved. If the queries of a sequence fit one tile, its backward pass is one kernel; else one kernel
loops over keys for each tile of queries, and one over queries for each tile of keys. n tokens,
b sequences, h heads, d head size.
"""

from math import log
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cloze.nn.kernels.dropout import keep_mask, row_bits
from cloze.nn.kernels.rotary import load_rotated, store_rotated
from cloze.nn.kernels.tiles import AttentionTiles, Tiles, choose_tiles

SHORT = 128  # tokens of a sequence
MAX_LIMITED = 64  # head size; with larger heads the registers per thread are not limited


@triton.jit
def _locate_tile(cu_seqlens, max_seqlen, TILE: tl.constexpr, HEADS: tl.constexpr):
    """Head and sequence of this program, the sequence's start and size, and the tile's position."""
    head, number = tl.program_id(0) % HEADS, tl.program_id(0) // HEADS
    tiles = tl.cdiv(max_seqlen, TILE)
    sequence = number // tiles
    begin = tl.load(cu_seqlens + sequence)
    size = tl.load(cu_seqlens + sequence + 1) - begin
    return head, sequence, begin, size, number % tiles * TILE


@triton.jit
def _is_real(positions, size, LAST: tl.constexpr):
    """Which positions are in the sequence; all, unless it ends in this tile."""
    return positions < size if LAST else tl.full(positions.shape, True, tl.int1)


@triton.jit
def _attn_mask(positions, keys, size, reach, WINDOWED: tl.constexpr, CAUSAL: tl.constexpr):
    """Which keys each query may attend to: real ones in its window; if causal, none after it."""
    distance = positions[:, None] - keys[None, :]
    mask = (keys < size)[None, :]
    if WINDOWED:
        mask &= tl.abs(distance) <= reach
    if CAUSAL:
        mask &= distance >= 0
    return mask


@triton.jit
def _key_range(
    first, size, reach,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WINDOWED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The keys of a tile of queries: start, end of the tiles that need no mask, end."""
    low, unmasked, high = first * 0, size // KEYS * KEYS, size
    if WINDOWED:
        low = tl.maximum(first - reach, 0) // KEYS * KEYS
        high = tl.minimum(high, first + QUERIES + reach)
    if CAUSAL:
        high = tl.minimum(high, first + QUERIES)
    if WINDOWED or CAUSAL:
        unmasked = low
    return low, unmasked, high


@triton.jit
def _query_range(
    first, size, reach,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WINDOWED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The queries that may attend to a tile of keys: start and end."""
    low, high = first * 0, size
    if WINDOWED:
        low = tl.maximum(first - reach, 0) // QUERIES * QUERIES
        high = tl.minimum(high, first + KEYS + reach)
    if CAUSAL:
        low = first // QUERIES * QUERIES
    return low, high


@triton.jit
def _attention_forward(
    qkv, cu_seqlens, cos, sin, seed, out, lse, n, max_seqlen, reach,
    scale, log2_scale, zero,
    HEADS: tl.constexpr, HALF: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    ROTARY: tl.constexpr, P: tl.constexpr, WINDOWED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, sequence, begin, size, first = _locate_tile(cu_seqlens, max_seqlen, QUERIES, HEADS)
    if first >= size:
        return
    D: tl.constexpr = 2 * HALF
    ROW: tl.constexpr = 3 * HEADS * D
    positions, columns = first + tl.arange(0, QUERIES), tl.arange(0, D)[None, :]
    real = positions < size
    at = qkv + begin.to(tl.int64) * ROW + head * D
    q_at = at + positions[:, None] * ROW
    q = load_rotated(q_at, cos, sin, positions, real[:, None], HALF, ROTARY)
    bits = row_bits(seed, (sequence * HEADS + head) * max_seqlen + positions)
    top = tl.full((QUERIES,), -1e30, tl.float32)  # not −∞, from which nothing can be subtracted
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, D), tl.float32)
    low, unmasked, high = _key_range(first, size, reach, QUERIES, KEYS, WINDOWED, CAUSAL)
    for MASKED in tl.static_range(2):
        since, until = (unmasked, high) if MASKED else (low, unmasked)
        if since < until:  # else a loop of no steps would still load its first tiles
            for start in range(since, until, KEYS):
                keys = start + tl.arange(0, KEYS)
                there = _is_real(keys, size, MASKED)[:, None]
                k_at = at + keys[:, None] * ROW
                k = load_rotated(k_at + HEADS * D, cos, sin, keys, there, HALF, ROTARY)
                v = tl.load(k_at + 2 * HEADS * D + columns, there, 0.0)
                scores = tl.dot(q, tl.trans(k))
                if MASKED:
                    mask = _attn_mask(positions, keys, size, reach, WINDOWED, CAUSAL)
                    scores = tl.where(mask, scores, -float("inf"))
                higher = tl.maximum(top, tl.max(scores, 1) * log2_scale)
                p = tl.exp2(scores * log2_scale - higher[:, None])
                rescale = tl.exp2(top - higher)
                total = total * rescale + tl.sum(p, 1)
                if P > 0:  # a constant zero would be moved behind the rounding and cost three times
                    p = tl.where(keep_mask(bits, start, KEYS, P, 8), p, zero)
                mixed = tl.dot(p.to(v.dtype), v, mixed * rescale[:, None])
                top = higher
    total = tl.maximum(total, 1e-30)  # rows past the end may attend to nothing
    mixed *= (1.0 / (total * (1.0 - P)))[:, None]
    rows = (begin + positions).to(tl.int64)
    to = out + rows[:, None] * (HEADS * D) + head * D + columns
    tl.store(to, mixed.to(out.dtype.element_ty), real[:, None])
    tl.store(lse + head.to(tl.int64) * n + rows, top + tl.log2(total), real)


@triton.jit
def _row_delta(dy, y, P: tl.constexpr):
    """dy·y of each row. The factor 1/(1 − P) is applied at the end of the backward pass."""
    return tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1) * (1.0 - P)


@triton.jit
def _recompute_weights(
    q, k, v, dy, log_sum, bits, positions, keys, first, size, reach, log2_scale, zero,
    KEYS: tl.constexpr, P: tl.constexpr, MASKED: tl.constexpr, WINDOWED: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """A tile of the attention weights, of those after dropout, and of the latter's gradient."""
    p = tl.exp2(tl.dot(q, tl.trans(k)) * log2_scale - log_sum[:, None])
    if MASKED:
        p = tl.where(_attn_mask(positions, keys, size, reach, WINDOWED, CAUSAL), p, 0.0)
    dp = tl.dot(dy, tl.trans(v))
    dropped = p
    if P > 0:
        keep = keep_mask(bits, first, KEYS, P, 8)
        dropped, dp = tl.where(keep, p, zero), tl.where(keep, dp, 0.0)
    return p, dropped, dp


@triton.jit
def _store_key_gradients(
    to, dk, dv, cos, sin, keys, there, scale,
    HEADS: tl.constexpr, HALF: tl.constexpr, ROTARY: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Store the gradients of keys and values, which are computed with keys as columns.

    This makes the recomputed weights the right operands of the products, which are in shared
    memory; left operands would be in registers.
    """
    columns = tl.arange(0, 2 * HALF)[None, :]
    dv = tl.trans((dv * (1.0 / (1.0 - P))).to(to.dtype.element_ty))
    tl.store(to + HEADS * 2 * HALF + columns, dv, there)
    dk = tl.trans(dk * (scale * (1.0 / (1.0 - P))))
    store_rotated(to, dk, cos, sin, keys, there, HALF, ROTARY)


@triton.jit
def _attention_backward_queries(
    qkv, cu_seqlens, cos, sin, seed, out, lse, grad_out, delta, grad, n, max_seqlen, reach,
    scale, log2_scale, zero,
    HEADS: tl.constexpr, HALF: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    ROTARY: tl.constexpr, P: tl.constexpr, WINDOWED: tl.constexpr, CAUSAL: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """The gradient of queries; and if the tile has all of them, those of keys and values.

    Else the kernel for those needs `delta`.
    """
    head, sequence, begin, size, first = _locate_tile(cu_seqlens, max_seqlen, QUERIES, HEADS)
    if first >= size:
        return
    D: tl.constexpr = 2 * HALF
    ROW: tl.constexpr = 3 * HEADS * D
    positions, columns = first + tl.arange(0, QUERIES), tl.arange(0, D)[None, :]
    real = positions < size
    offset = begin.to(tl.int64) * ROW + head * D
    at, to = qkv + offset, grad + offset
    q_at = at + positions[:, None] * ROW
    q = load_rotated(q_at, cos, sin, positions, real[:, None], HALF, ROTARY)
    rows = (begin + positions).to(tl.int64)
    mixed = rows[:, None] * (HEADS * D) + head * D + columns
    dy = tl.load(grad_out + mixed, real[:, None], 0.0)
    row_delta = _row_delta(dy, tl.load(out + mixed, real[:, None], 0.0), P)
    line = head.to(tl.int64) * n + rows
    log_sum = tl.load(lse + line, real, 0.0)
    tl.store(delta + line, row_delta, real)
    bits = row_bits(seed, (sequence * HEADS + head) * max_seqlen + positions)
    dq = tl.zeros((QUERIES, D), tl.float32)
    low, unmasked, high = _key_range(first, size, reach, QUERIES, KEYS, WINDOWED, CAUSAL)
    for MASKED in tl.static_range(2):
        since, until = (unmasked, high) if MASKED else (low, unmasked)
        if since < until:  # else a loop of no steps would still load its first tiles
            for start in range(since, until, KEYS):
                keys = start + tl.arange(0, KEYS)
                there = _is_real(keys, size, MASKED)[:, None]
                k_at = at + keys[:, None] * ROW
                k = load_rotated(k_at + HEADS * D, cos, sin, keys, there, HALF, ROTARY)
                v = tl.load(k_at + 2 * HEADS * D + columns, there, 0.0)
                p, dropped, dp = _recompute_weights(
                    q, k, v, dy, log_sum, bits, positions, keys, start, size, reach, log2_scale,
                    zero, KEYS, P, MASKED, WINDOWED, CAUSAL,
                )  # fmt: skip
                ds = (p * (dp - row_delta[:, None])).to(k.dtype)
                if WHOLE:
                    dk, dv = tl.dot(tl.trans(q), ds), tl.dot(tl.trans(dy), dropped.to(v.dtype))
                    _store_key_gradients(
                        to + HEADS * D + keys[:, None] * ROW, dk, dv, cos, sin, keys, there, scale,
                        HEADS, HALF, ROTARY, P,
                    )  # fmt: skip
                dq = tl.dot(ds, k, dq)
    dq *= scale * (1.0 / (1.0 - P))
    q_to = to + positions[:, None] * ROW
    store_rotated(q_to, dq, cos, sin, positions, real[:, None], HALF, ROTARY)


@triton.jit
def _attention_backward_keys(
    qkv, cu_seqlens, cos, sin, seed, out, lse, grad_out, delta, grad, n, max_seqlen, reach,
    scale, log2_scale, zero,
    HEADS: tl.constexpr, HALF: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    ROTARY: tl.constexpr, P: tl.constexpr, WINDOWED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradients of keys and values.

    Keys past the end need no mask: nothing of theirs is stored.
    """
    head, sequence, begin, size, first = _locate_tile(cu_seqlens, max_seqlen, KEYS, HEADS)
    if first >= size:
        return
    D: tl.constexpr = 2 * HALF
    ROW: tl.constexpr = 3 * HEADS * D
    keys, columns = first + tl.arange(0, KEYS), tl.arange(0, D)[None, :]
    there = (keys < size)[:, None]
    offset = begin.to(tl.int64) * ROW + head * D
    at, to = qkv + offset, grad + offset
    key = HEADS * D + keys[:, None] * ROW
    k = load_rotated(at + key, cos, sin, keys, there, HALF, ROTARY)
    v = tl.load(at + HEADS * D + key + columns, there, 0.0)
    dk, dv = tl.zeros((D, KEYS), tl.float32), tl.zeros((D, KEYS), tl.float32)
    low, high = _query_range(first, size, reach, QUERIES, KEYS, WINDOWED, CAUSAL)
    grad_out += begin.to(tl.int64) * (HEADS * D) + head * D
    line = head.to(tl.int64) * n + begin
    whole = high // QUERIES * QUERIES
    for LAST in tl.static_range(2):
        since, until = (whole, high) if LAST else (low, whole)
        if since < until:  # else a loop of no steps would still load its first tiles
            for start in range(since, until, QUERIES):
                positions = start + tl.arange(0, QUERIES)
                real = _is_real(positions, size, LAST)
                q_at = at + positions[:, None] * ROW
                q = load_rotated(q_at, cos, sin, positions, real[:, None], HALF, ROTARY)
                dy_at = grad_out + positions[:, None] * (HEADS * D) + columns
                dy = tl.load(dy_at, real[:, None], 0.0)
                log_sum = tl.load(lse + line + positions, real, 0.0)
                row_delta = tl.load(delta + line + positions, real, 0.0)
                bits = row_bits(seed, (sequence * HEADS + head) * max_seqlen + positions)
                p, dropped, dp = _recompute_weights(
                    q, k, v, dy, log_sum, bits, positions, keys, first, size, reach, log2_scale,
                    zero, KEYS, P, WINDOWED or CAUSAL, WINDOWED, CAUSAL,
                )  # fmt: skip
                dv = tl.dot(tl.trans(dy), dropped.to(v.dtype), dv)
                ds = (p * (dp - row_delta[:, None])).to(k.dtype)
                dk = tl.dot(tl.trans(q), ds, dk)
    _store_key_gradients(to + key, dk, dv, cos, sin, keys, there, scale, HEADS, HALF, ROTARY, P)


def _tiles_for(qkv: Tensor, cos: Tensor) -> AttentionTiles:
    """The tiles for these tensors and their chip; the interpreter has no limit."""
    shared = 1 << 30
    if qkv.is_cuda:
        chip: Any = torch.cuda.get_device_properties(qkv.device)
        shared = chip.shared_memory_per_block_optin
    rotary = cos.numel() > 0
    return choose_tiles(qkv.element_size(), qkv.shape[-1], rotary=rotary, shared_memory=shared)


def _launch(
    kernel: Any,
    tiles: Tiles,
    tensors: tuple[Tensor, ...],
    max_seqlen: int,
    reach: int,
    p: float,
    is_causal: bool,
    **more: Any,
) -> None:
    """A program for each head and each tile of each sequence."""
    qkv, cu_seqlens, cos, *_ = tensors
    n, parts, head_size = qkv.shape
    scale = head_size**-0.5
    limit = max(16, triton.next_power_of_2(max_seqlen))
    queries, keys = min(tiles.queries, limit), min(tiles.keys, limit)
    per_sequence = triton.cdiv(max_seqlen, keys if kernel is _attention_backward_keys else queries)
    kernel[(parts // 3 * (len(cu_seqlens) - 1) * per_sequence,)](
        *(*tensors, n, max_seqlen, reach, scale, scale / log(2), 0.0),  # powers of 2, not of e
        HEADS=parts // 3,
        HALF=head_size // 2,
        QUERIES=queries,
        KEYS=keys,
        ROTARY=cos.numel() > 0,
        P=p,
        WINDOWED=reach < max_seqlen,
        CAUSAL=is_causal,
        num_warps=min(tiles.warps, max(4, queries // 16)),
        num_stages=tiles.stages,
        maxnreg=tiles.registers if head_size <= MAX_LIMITED else None,
        **more,
    )


def _empty_outputs(qkv: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    n, parts, head_size = qkv.shape
    lse = qkv.new_empty(parts // 3, n, dtype=torch.float32)
    return qkv.new_empty(n, parts // 3, head_size), lse


def compute_attention(
    qkv: Tensor,
    cu_seqlens: Tensor,
    cos: Tensor,
    sin: Tensor,
    seed: Tensor,
    max_seqlen: int,
    reach: int,
    p: float,
    is_causal: bool,
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d)·V within each sequence, n h d, of queries, keys and values n 3h d.

    `cu_seqlens` must cover the row, and no sequence be longer than `max_seqlen`. With a rotary
    table (`max_seqlen` d/2; else empty) queries and keys are rotated by their positions. No token
    attends further than `reach` positions to either side, nor, if it is causal, to a later one.
    Dropout of the weights has probability p. The second result, which the backward pass needs, is
    the log-sum-exp (of base 2) of each row, h n.
    """
    outputs = _empty_outputs(qkv)
    tensors = (qkv.contiguous(), cu_seqlens, cos, sin, seed, *outputs)
    tiles = _tiles_for(qkv, cos)
    chosen = tiles.short_forward if max_seqlen <= SHORT else tiles.long_forward
    _launch(_attention_forward, chosen, tensors, max_seqlen, reach, p, is_causal)
    return outputs


@torch.library.custom_op("cloze::attention_backward", mutates_args=())
def _attention_backward(
    grad_out: Tensor,
    qkv: Tensor,
    cu_seqlens: Tensor,
    cos: Tensor,
    sin: Tensor,
    seed: Tensor,
    out: Tensor,
    lse: Tensor,
    max_seqlen: int,
    reach: int,
    p: float,
    is_causal: bool,
) -> Tensor:
    qkv = qkv.contiguous()
    grad, delta = torch.empty_like(qkv), torch.empty_like(lse)
    tensors = (qkv, cu_seqlens, cos, sin, seed, out, lse, grad_out.contiguous(), delta, grad)
    arguments = (tensors, max_seqlen, reach, p, is_causal)
    tiles = _tiles_for(qkv, cos)
    if max_seqlen <= tiles.short_backward.queries:
        _launch(_attention_backward_queries, tiles.short_backward, *arguments, WHOLE=True)
    else:
        _launch(_attention_backward_queries, tiles.long_queries, *arguments, WHOLE=False)
        _launch(_attention_backward_keys, tiles.long_keys, *arguments)
    return grad


attention = torch.library.custom_op("cloze::attention", compute_attention, mutates_args=())
attention.register_fake(_empty_outputs)
_attention_backward.register_fake(lambda _, qkv, *more: torch.empty_like(qkv.contiguous()))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.max_seqlen, ctx.reach, ctx.p, ctx.is_causal = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    arguments = ctx.max_seqlen, ctx.reach, ctx.p, ctx.is_causal
    return _attention_backward(grad_out, *ctx.saved_tensors, *arguments), *[None] * 8


attention.register_autograd(_backward, setup_context=_setup_context)
