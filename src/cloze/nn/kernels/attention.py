"""Attention within short sequences of a flat row, each in one tile of the GPU, there and back.

The general kernel reads a sequence in parts, and gathers gradients in float32 to round them later.
One that fits a tile needs neither: scores, softmax and gradients stay on the chip, the rotation of
queries and keys too, and only the projections are read and written. n tokens, b sequences, h heads,
d head width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cloze.nn.kernels.bits import factors


@triton.jit
def _turned(first, second, cos, sin):
    """Both halves of a head, turned by the angles of their places."""
    a, b = first.to(tl.float32), second.to(tl.float32)
    return (a * cos - b * sin).to(first.dtype), (b * cos + a * sin).to(first.dtype)


@triton.jit
def _halves(at, cos, sin, real, HALF: tl.constexpr, LENGTH: tl.constexpr, TURNS: tl.constexpr):
    """Queries or keys, in two halves: so a turn needs no exchange between threads."""
    half = tl.arange(0, HALF)[None, :]
    first, second = tl.load(at + half, real, 0.0), tl.load(at + half + HALF, real, 0.0)
    if TURNS:
        angle = tl.arange(0, LENGTH)[:, None] * HALF + half
        c, s = tl.load(cos + angle, real, 0.0), tl.load(sin + angle, real, 0.0)
        first, second = _turned(first, second, c, s)
    return first, second


@triton.jit
def _keep_halves(
    at, first, second, cos, sin, real, HALF: tl.constexpr, LENGTH: tl.constexpr, TURNS: tl.constexpr
):
    """The gradient of `_halves`, written to its place."""
    half = tl.arange(0, HALF)[None, :]
    if TURNS:
        angle = tl.arange(0, LENGTH)[:, None] * HALF + half
        c, s = tl.load(cos + angle, real, 0.0), tl.load(sin + angle, real, 0.0)
        first, second = _turned(first, second, c, -s)
    tl.store(at + half, first.to(at.dtype.element_ty), real)
    tl.store(at + half + HALF, second.to(at.dtype.element_ty), real)


@triton.jit
def _weights(q1, q2, k1, k2, size, window, scale, LENGTH: tl.constexpr, CAUSAL: tl.constexpr):
    """softmax(QKᵀ·scale) over the keys that are there and near; if causal, not ahead."""
    scores = tl.dot(q1, tl.trans(k1))
    scores = tl.dot(q2, tl.trans(k2), scores) * (scale * 1.4426950408889634)  # powers of 2, not e
    place = tl.arange(0, LENGTH)
    away = place[:, None] - place[None, :]
    hidden = (place[None, :] >= size) | (tl.abs(away) > window)
    if CAUSAL:
        hidden |= away < 0
    scores = tl.where(hidden, -float("inf"), scores)
    top = tl.max(scores, 1)
    top = tl.where(top == -float("inf"), 0.0, top)  # rows past the end see nothing
    raised = tl.exp2(scores - top[:, None])
    return raised / tl.maximum(tl.sum(raised, 1), 1e-30)[:, None]


@triton.jit
def _attention_forward(
    qkv, bounds, cos, sin, seed, out, window, scale,
    HEADS: tl.constexpr, HALF: tl.constexpr, LENGTH: tl.constexpr, TURNS: tl.constexpr,
    SHARE: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0), tl.program_id(1)
    begin = tl.load(bounds + sequence)
    size = tl.load(bounds + sequence + 1) - begin
    if size > 0:
        D: tl.constexpr = 2 * HALF
        place, whole = tl.arange(0, LENGTH), tl.arange(0, D)[None, :]
        real = (place < size)[:, None]
        row = (begin + place).to(tl.int64)[:, None]
        at = qkv + row * (3 * HEADS * D) + head * D
        q1, q2 = _halves(at, cos, sin, real, HALF, LENGTH, TURNS)
        k1, k2 = _halves(at + HEADS * D, cos, sin, real, HALF, LENGTH, TURNS)
        v = tl.load(at + 2 * HEADS * D + whole, real, 0.0)
        p = _weights(q1, q2, k1, k2, size, window, scale, LENGTH, CAUSAL)
        if SHARE > 0:
            p *= factors(seed, (sequence * HEADS + head) * LENGTH + place, place, SHARE)
        mixed = tl.dot(p.to(v.dtype), v)
        tl.store(out + row * (HEADS * D) + head * D + whole, mixed.to(v.dtype), real)


@triton.jit
def _attention_reverse(
    qkv, bounds, cos, sin, seed, slope, grad, window, scale,
    HEADS: tl.constexpr, HALF: tl.constexpr, LENGTH: tl.constexpr, TURNS: tl.constexpr,
    SHARE: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head, sequence = tl.program_id(0), tl.program_id(1)
    begin = tl.load(bounds + sequence)
    size = tl.load(bounds + sequence + 1) - begin
    if size > 0:
        D: tl.constexpr = 2 * HALF
        place, whole = tl.arange(0, LENGTH), tl.arange(0, D)[None, :]
        real = (place < size)[:, None]
        row = (begin + place).to(tl.int64)[:, None]
        at = qkv + row * (3 * HEADS * D) + head * D
        to = grad + row * (3 * HEADS * D) + head * D
        q1, q2 = _halves(at, cos, sin, real, HALF, LENGTH, TURNS)
        k1, k2 = _halves(at + HEADS * D, cos, sin, real, HALF, LENGTH, TURNS)
        v = tl.load(at + 2 * HEADS * D + whole, real, 0.0)
        dy = tl.load(slope + row * (HEADS * D) + head * D + whole, real, 0.0)
        p = _weights(q1, q2, k1, k2, size, window, scale, LENGTH, CAUSAL)
        dp = tl.dot(dy, tl.trans(v))
        seen = p
        if SHARE > 0:
            kept = factors(seed, (sequence * HEADS + head) * LENGTH + place, place, SHARE)
            dp *= kept
            seen = p * kept
        dv = tl.dot(tl.trans(seen.to(v.dtype)), dy)
        tl.store(to + 2 * HEADS * D + whole, dv.to(v.dtype), real)
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(v.dtype)
        d1, d2 = tl.dot(ds, k1), tl.dot(ds, k2)
        _keep_halves(to, d1, d2, cos, sin, real, HALF, LENGTH, TURNS)
        ds = tl.trans(ds)
        d1, d2 = tl.dot(ds, q1), tl.dot(ds, q2)
        _keep_halves(to + HEADS * D, d1, d2, cos, sin, real, HALF, LENGTH, TURNS)


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    longest: int,
    window: int,
    share: float,
    causal: bool,
    warps: int,
) -> None:
    qkv, bounds, cos, *_ = tensors
    _, parts, width = qkv.shape
    kernel[(parts // 3, len(bounds) - 1)](
        *(*tensors, window, width**-0.5),
        HEADS=parts // 3,
        HALF=width // 2,
        LENGTH=max(16, triton.next_power_of_2(longest)),
        TURNS=cos.numel() > 0,
        SHARE=share,
        CAUSAL=causal,
        num_warps=warps,
    )


def _out(qkv: Tensor, *_: Any) -> Tensor:
    return qkv.new_empty(len(qkv), qkv.shape[1] // 3, qkv.shape[2])


@torch.library.custom_op("cloze::tile_attention", mutates_args=())
def tile_attention(
    qkv: Tensor,
    bounds: Tensor,
    cos: Tensor,
    sin: Tensor,
    seed: Tensor,
    longest: int,
    window: int,
    share: float,
    causal: bool,
) -> Tensor:
    """softmax(QKᵀ/√d)·V within each sequence, n h d, of queries, keys and values n 3h d.

    The bounds must cover the row, and no sequence be longer than `longest`. With a
    table of angles (`longest` d/2; else of no numbers) queries and keys are turned by their places.
    No one looks further than `window` places, nor, where it is causal, ahead.
    """
    qkv, out = qkv.contiguous(), _out(qkv)
    tensors = (qkv, bounds, cos, sin, seed, out)
    _launch(_attention_forward, tensors, longest, window, share, causal, 4)
    return out


@torch.library.custom_op("cloze::tile_attention_backward", mutates_args=())
def _tile_attention_backward(
    slope: Tensor,
    qkv: Tensor,
    bounds: Tensor,
    cos: Tensor,
    sin: Tensor,
    seed: Tensor,
    longest: int,
    window: int,
    share: float,
    causal: bool,
) -> Tensor:
    qkv, slope = qkv.contiguous(), slope.contiguous()
    grad = torch.empty_like(qkv)
    tensors = (qkv, bounds, cos, sin, seed, slope, grad)
    _launch(_attention_reverse, tensors, longest, window, share, causal, 8)
    return grad


tile_attention.register_fake(_out)
_tile_attention_backward.register_fake(lambda _, qkv, *more: torch.empty_like(qkv.contiguous()))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.longest, ctx.window, ctx.share, ctx.causal = inputs
    ctx.save_for_backward(*tensors)


def _back(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    how = ctx.longest, ctx.window, ctx.share, ctx.causal
    return _tile_attention_backward(slope, *ctx.saved_tensors, *how), *[None] * 8


tile_attention.register_autograd(_back, setup_context=_keep)
