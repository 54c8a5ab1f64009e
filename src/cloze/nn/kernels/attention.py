"""Attention within the sequences of a flat row, there and back.

Flash attention (Dao 2023) made for this row: queries, keys and values are read where the projection
left them, turned by their places on the chip, and their gradients are written into one tensor.
Dropout is drawn anew on the way back, so all that is kept is the result and the logarithm of each
row's sum. A sequence whose queries fit one tile goes back in one kernel; else one goes over keys
for each tile of queries, and one over queries for each tile of keys. n tokens, b sequences,
h heads, d head width.
"""

from math import log
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from cloze.nn.kernels.bits import kept, lots
from cloze.nn.kernels.heads import read, write


class Tiles(NamedTuple):
    """How a kernel is cut and run."""

    queries: int
    keys: int
    warps: int
    stages: int  # of its loop: how many tiles are on their way at once
    registers: int | None = None  # a thread may have; fewer let more programs run side by side


class Cuts(NamedTuple):
    """All kernels; `python bench/cuts.py` times others."""

    short_forward: Tiles
    short_reverse: Tiles  # sequences of no more queries go back in one kernel
    long_forward: Tiles
    long_queries: Tiles
    long_keys: Tiles


# the fastest for heads of 64 on an H200: of BERT's, with dropout, and of turned ones, without
PLAIN = Cuts(
    short_forward=Tiles(64, 64, 4, 2),
    short_reverse=Tiles(128, 32, 8, 3, 128),
    long_forward=Tiles(128, 64, 8, 3),
    long_queries=Tiles(128, 64, 8, 3, 128),
    long_keys=Tiles(64, 64, 4, 3, 168),
)
TURNED = Cuts(
    short_forward=Tiles(128, 128, 4, 1),
    short_reverse=Tiles(128, 32, 8, 1, 128),
    long_forward=Tiles(128, 64, 4, 3),
    long_queries=Tiles(128, 64, 8, 3, 128),
    long_keys=Tiles(128, 128, 8, 2),
)
SMALL = Cuts(  # for chips with less memory than that one; by what the compiler needs, not timed
    short_forward=Tiles(64, 64, 4, 1),
    short_reverse=Tiles(64, 32, 4, 1),
    long_forward=Tiles(64, 64, 4, 1),
    long_queries=Tiles(64, 32, 4, 1),
    long_keys=Tiles(32, 64, 4, 1),
)
LARGE = 200 * 1024  # bytes that the programs of a processor share
SHORT = 128  # tokens of a sequence
NARROW = 64  # width of a head; in wider ones a thread needs all the registers it can have


@triton.jit
def _here(bounds, longest, TILE: tl.constexpr, HEADS: tl.constexpr):
    """Which head and sequence, where it begins, its size, and the first place of this tile."""
    head, number = tl.program_id(0) % HEADS, tl.program_id(0) // HEADS
    tiles = tl.cdiv(longest, TILE)
    sequence = number // tiles
    begin = tl.load(bounds + sequence)
    size = tl.load(bounds + sequence + 1) - begin
    return head, sequence, begin, size, number % tiles * TILE


@triton.jit
def _there(places, size, ENDS: tl.constexpr):
    """Which places are within the sequence; all, unless it ends in this tile."""
    return places < size if ENDS else tl.full(places.shape, True, tl.int1)


@triton.jit
def _visible(places, keys, size, window, NEAR: tl.constexpr, CAUSAL: tl.constexpr):
    """Which keys each place sees: those that are there and near; if causal, not ahead."""
    away = places[:, None] - keys[None, :]
    visible = (keys < size)[None, :]
    if NEAR:
        visible &= tl.abs(away) <= window
    if CAUSAL:
        visible &= away >= 0
    return visible


@triton.jit
def _keys_seen(
    first, size, window,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, NEAR: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Which keys a tile of queries looks at: from, up to where each sees all of a tile, and to."""
    low, whole, high = first * 0, size // KEYS * KEYS, size
    if NEAR:
        low = tl.maximum(first - window, 0) // KEYS * KEYS
        high = tl.minimum(high, first + QUERIES + window)
    if CAUSAL:
        high = tl.minimum(high, first + QUERIES)
    if NEAR or CAUSAL:
        whole = low
    return low, whole, high


@triton.jit
def _queries_seeing(
    first, size, window,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, NEAR: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """From which query to which a tile of keys is seen."""
    low, high = first * 0, size
    if NEAR:
        low = tl.maximum(first - window, 0) // QUERIES * QUERIES
        high = tl.minimum(high, first + KEYS + window)
    if CAUSAL:
        low = first // QUERIES * QUERIES
    return low, high


@triton.jit
def _attention_forward(
    qkv, bounds, cos, sin, seed, out, logs, n, longest, window,
    scale, steep, zero,
    HEADS: tl.constexpr, HALF: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    TURNS: tl.constexpr, SHARE: tl.constexpr, NEAR: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, sequence, begin, size, first = _here(bounds, longest, QUERIES, HEADS)
    if first >= size:
        return
    D: tl.constexpr = 2 * HALF
    ROW: tl.constexpr = 3 * HEADS * D
    places, columns = first + tl.arange(0, QUERIES), tl.arange(0, D)[None, :]
    real = places < size
    at = qkv + begin.to(tl.int64) * ROW + head * D
    q = read(at + places[:, None] * ROW, cos, sin, places, real[:, None], HALF, TURNS)
    lot = lots(seed, (sequence * HEADS + head) * longest + places)
    top = tl.full((QUERIES,), -1e30, tl.float32)  # not −∞, from which nothing can be taken
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, D), tl.float32)
    low, whole, high = _keys_seen(first, size, window, QUERIES, KEYS, NEAR, CAUSAL)
    for MASKED in tl.static_range(2):
        since, until = (whole, high) if MASKED else (low, whole)
        if since < until:  # else a loop that never runs would still fetch its first tiles
            for start in range(since, until, KEYS):
                keys = start + tl.arange(0, KEYS)
                there = _there(keys, size, MASKED)[:, None]
                key = at + keys[:, None] * ROW
                k = read(key + HEADS * D, cos, sin, keys, there, HALF, TURNS)
                v = tl.load(key + 2 * HEADS * D + columns, there, 0.0)
                scores = tl.dot(q, tl.trans(k))
                if MASKED:
                    visible = _visible(places, keys, size, window, NEAR, CAUSAL)
                    scores = tl.where(visible, scores, -float("inf"))
                higher = tl.maximum(top, tl.max(scores, 1) * steep)
                p = tl.exp2(scores * steep - higher[:, None])
                less = tl.exp2(top - higher)
                total = total * less + tl.sum(p, 1)
                if SHARE > 0:  # a constant zero would move behind the rounding and cost thrice
                    p = tl.where(kept(lot, start, KEYS, SHARE, 8), p, zero)
                mixed = tl.dot(p.to(v.dtype), v, mixed * less[:, None])
                top = higher
    total = tl.maximum(total, 1e-30)  # rows past the end may see nothing
    mixed *= (1.0 / (total * (1.0 - SHARE)))[:, None]
    rows = (begin + places).to(tl.int64)
    to = out + rows[:, None] * (HEADS * D) + head * D + columns
    tl.store(to, mixed.to(out.dtype.element_ty), real[:, None])
    tl.store(logs + head.to(tl.int64) * n + rows, top + tl.log2(total), real)


@triton.jit
def _along(dy, y, SHARE: tl.constexpr):
    """dy·y of each row. On the way back the factor 1/(1 − SHARE) is left to the very end."""
    return tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1) * (1.0 - SHARE)


@triton.jit
def _again(
    q, k, v, dy, log, lot, places, keys, first, size, window, steep, zero,
    KEYS: tl.constexpr, SHARE: tl.constexpr, HIDES: tl.constexpr, NEAR: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    """The weights, those that were seen, and the gradient of the latter; a tile of each."""
    p = tl.exp2(tl.dot(q, tl.trans(k)) * steep - log[:, None])
    if HIDES:
        p = tl.where(_visible(places, keys, size, window, NEAR, CAUSAL), p, 0.0)
    dp = tl.dot(dy, tl.trans(v))
    seen = p
    if SHARE > 0:
        stays = kept(lot, first, KEYS, SHARE, 8)
        seen, dp = tl.where(stays, p, zero), tl.where(stays, dp, 0.0)
    return p, seen, dp


@triton.jit
def _write(
    to, dk, dv, cos, sin, keys, there, scale,
    HEADS: tl.constexpr, HALF: tl.constexpr, TURNS: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """The gradients of keys and values, to their places; they come with keys as columns.

    So what was computed is the right factor of their products, which lies in shared memory: a left
    one would fill registers.
    """
    columns = tl.arange(0, 2 * HALF)[None, :]
    dv = tl.trans((dv * (1.0 / (1.0 - SHARE))).to(to.dtype.element_ty))
    tl.store(to + HEADS * 2 * HALF + columns, dv, there)
    dk = tl.trans(dk * (scale * (1.0 / (1.0 - SHARE))))
    write(to, dk, cos, sin, keys, there, HALF, TURNS)


@triton.jit
def _attention_queries(
    qkv, bounds, cos, sin, seed, out, logs, slope, alongs, grad, n, longest, window,
    scale, steep, zero,
    HEADS: tl.constexpr, HALF: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    TURNS: tl.constexpr, SHARE: tl.constexpr, NEAR: tl.constexpr, CAUSAL: tl.constexpr,
    ALONE: tl.constexpr,
):  # fmt: skip
    """The gradient of queries; and if these are all queries, those of keys and values.

    Else those need `_along` too.
    """
    head, sequence, begin, size, first = _here(bounds, longest, QUERIES, HEADS)
    if first >= size:
        return
    D: tl.constexpr = 2 * HALF
    ROW: tl.constexpr = 3 * HEADS * D
    places, columns = first + tl.arange(0, QUERIES), tl.arange(0, D)[None, :]
    real = places < size
    own = begin.to(tl.int64) * ROW + head * D
    at, to = qkv + own, grad + own
    q = read(at + places[:, None] * ROW, cos, sin, places, real[:, None], HALF, TURNS)
    rows = (begin + places).to(tl.int64)
    mixed = rows[:, None] * (HEADS * D) + head * D + columns
    dy = tl.load(slope + mixed, real[:, None], 0.0)
    along = _along(dy, tl.load(out + mixed, real[:, None], 0.0), SHARE)
    line = head.to(tl.int64) * n + rows
    log = tl.load(logs + line, real, 0.0)
    tl.store(alongs + line, along, real)
    lot = lots(seed, (sequence * HEADS + head) * longest + places)
    dq = tl.zeros((QUERIES, D), tl.float32)
    low, whole, high = _keys_seen(first, size, window, QUERIES, KEYS, NEAR, CAUSAL)
    for MASKED in tl.static_range(2):
        since, until = (whole, high) if MASKED else (low, whole)
        if since < until:  # else a loop that never runs would still fetch its first tiles
            for start in range(since, until, KEYS):
                keys = start + tl.arange(0, KEYS)
                there = _there(keys, size, MASKED)[:, None]
                key = at + keys[:, None] * ROW
                k = read(key + HEADS * D, cos, sin, keys, there, HALF, TURNS)
                v = tl.load(key + 2 * HEADS * D + columns, there, 0.0)
                p, seen, dp = _again(
                    q, k, v, dy, log, lot, places, keys, start, size, window, steep, zero,
                    KEYS, SHARE, MASKED, NEAR, CAUSAL,
                )  # fmt: skip
                ds = (p * (dp - along[:, None])).to(k.dtype)
                if ALONE:
                    dk, dv = tl.dot(tl.trans(q), ds), tl.dot(tl.trans(dy), seen.to(v.dtype))
                    _write(
                        to + HEADS * D + keys[:, None] * ROW, dk, dv, cos, sin, keys, there, scale,
                        HEADS, HALF, TURNS, SHARE,
                    )  # fmt: skip
                dq = tl.dot(ds, k, dq)
    dq *= scale * (1.0 / (1.0 - SHARE))
    write(to + places[:, None] * ROW, dq, cos, sin, places, real[:, None], HALF, TURNS)


@triton.jit
def _attention_keys(
    qkv, bounds, cos, sin, seed, out, logs, slope, alongs, grad, n, longest, window,
    scale, steep, zero,
    HEADS: tl.constexpr, HALF: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
    TURNS: tl.constexpr, SHARE: tl.constexpr, NEAR: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradients of keys and values.

    Keys past the end need not be hidden: nothing of theirs is written.
    """
    head, sequence, begin, size, first = _here(bounds, longest, KEYS, HEADS)
    if first >= size:
        return
    D: tl.constexpr = 2 * HALF
    ROW: tl.constexpr = 3 * HEADS * D
    keys, columns = first + tl.arange(0, KEYS), tl.arange(0, D)[None, :]
    there = (keys < size)[:, None]
    own = begin.to(tl.int64) * ROW + head * D
    at, to = qkv + own, grad + own
    key = HEADS * D + keys[:, None] * ROW
    k = read(at + key, cos, sin, keys, there, HALF, TURNS)
    v = tl.load(at + HEADS * D + key + columns, there, 0.0)
    dk, dv = tl.zeros((D, KEYS), tl.float32), tl.zeros((D, KEYS), tl.float32)
    low, high = _queries_seeing(first, size, window, QUERIES, KEYS, NEAR, CAUSAL)
    slope += begin.to(tl.int64) * (HEADS * D) + head * D
    line = head.to(tl.int64) * n + begin
    whole = high // QUERIES * QUERIES
    for MASKED in tl.static_range(2):
        since, until = (whole, high) if MASKED else (low, whole)
        if since < until:  # else a loop that never runs would still fetch its first tiles
            for start in range(since, until, QUERIES):
                places = start + tl.arange(0, QUERIES)
                real = _there(places, size, MASKED)
                q = read(at + places[:, None] * ROW, cos, sin, places, real[:, None], HALF, TURNS)
                dy = tl.load(slope + places[:, None] * (HEADS * D) + columns, real[:, None], 0.0)
                log = tl.load(logs + line + places, real, 0.0)
                along = tl.load(alongs + line + places, real, 0.0)
                lot = lots(seed, (sequence * HEADS + head) * longest + places)
                p, seen, dp = _again(
                    q, k, v, dy, log, lot, places, keys, first, size, window, steep, zero,
                    KEYS, SHARE, NEAR or CAUSAL, NEAR, CAUSAL,
                )  # fmt: skip
                dv = tl.dot(tl.trans(dy), seen.to(v.dtype), dv)
                ds = (p * (dp - along[:, None])).to(k.dtype)
                dk = tl.dot(tl.trans(q), ds, dk)
    _write(to + key, dk, dv, cos, sin, keys, there, scale, HEADS, HALF, TURNS, SHARE)


def _cuts(qkv: Tensor, cos: Tensor) -> Cuts:
    """What fits the chip; turned heads of other widths than were timed might not, cut so large."""
    if qkv.is_cuda:
        chip = torch.cuda.get_device_properties(qkv.device)
        if chip.shared_memory_per_block_optin < LARGE:  # type: ignore[attr-defined]
            return SMALL
    return TURNED if cos.numel() > 0 and qkv.shape[-1] == NARROW else PLAIN


def _launch(
    kernel: Any,
    tiles: Tiles,
    tensors: tuple[Tensor, ...],
    longest: int,
    window: int,
    share: float,
    causal: bool,
    **more: Any,
) -> None:
    """A program for each head and each tile of each sequence."""
    qkv, bounds, cos, *_ = tensors
    n, parts, width = qkv.shape
    scale = width**-0.5
    most = max(16, triton.next_power_of_2(longest))
    queries, keys = min(tiles.queries, most), min(tiles.keys, most)
    each = triton.cdiv(longest, keys if kernel is _attention_keys else queries)
    kernel[(parts // 3 * (len(bounds) - 1) * each,)](
        *(*tensors, n, longest, window, scale, scale / log(2), 0.0),  # powers of 2, not e
        HEADS=parts // 3,
        HALF=width // 2,
        QUERIES=queries,
        KEYS=keys,
        TURNS=cos.numel() > 0,
        SHARE=share,
        NEAR=window < longest,
        CAUSAL=causal,
        num_warps=min(tiles.warps, max(4, queries // 16)),
        num_stages=tiles.stages,
        maxnreg=tiles.registers if width <= NARROW else None,
        **more,
    )


def _found(qkv: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    n, parts, width = qkv.shape
    return qkv.new_empty(n, parts // 3, width), qkv.new_empty(parts // 3, n, dtype=torch.float32)


@torch.library.custom_op("cloze::attention", mutates_args=())
def attention(
    qkv: Tensor,
    bounds: Tensor,
    cos: Tensor,
    sin: Tensor,
    seed: Tensor,
    longest: int,
    window: int,
    share: float,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d)·V within each sequence, n h d, of queries, keys and values n 3h d.

    The bounds must cover the row, and no sequence be longer than `longest`. With a
    table of angles (`longest` d/2; else of no numbers) queries and keys are turned by their places.
    No one looks further than `window` places, nor, where it is causal, ahead. Beside it what the
    way back needs: the logarithm (of base 2) of each row's sum, h n.
    """
    found = _found(qkv)
    tensors = (qkv.contiguous(), bounds, cos, sin, seed, *found)
    cuts = _cuts(qkv, cos)
    tiles = cuts.short_forward if longest <= SHORT else cuts.long_forward
    _launch(_attention_forward, tiles, tensors, longest, window, share, causal)
    return found


@torch.library.custom_op("cloze::attention_backward", mutates_args=())
def _attention_backward(
    slope: Tensor,
    qkv: Tensor,
    bounds: Tensor,
    cos: Tensor,
    sin: Tensor,
    seed: Tensor,
    out: Tensor,
    logs: Tensor,
    longest: int,
    window: int,
    share: float,
    causal: bool,
) -> Tensor:
    qkv = qkv.contiguous()
    grad, alongs = torch.empty_like(qkv), torch.empty_like(logs)
    tensors = (qkv, bounds, cos, sin, seed, out, logs, slope.contiguous(), alongs, grad)
    how = (tensors, longest, window, share, causal)
    cuts = _cuts(qkv, cos)
    if longest <= cuts.short_reverse.queries:
        _launch(_attention_queries, cuts.short_reverse, *how, ALONE=True)
    else:
        _launch(_attention_queries, cuts.long_queries, *how, ALONE=False)
        _launch(_attention_keys, cuts.long_keys, *how)
    return grad


attention.register_fake(_found)
_attention_backward.register_fake(lambda _, qkv, *more: torch.empty_like(qkv.contiguous()))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.longest, ctx.window, ctx.share, ctx.causal = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _back(ctx: Any, slope: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    how = ctx.longest, ctx.window, ctx.share, ctx.causal
    return _attention_backward(slope, *ctx.saved_tensors, *how), *[None] * 8


attention.register_autograd(_back, setup_context=_keep)
