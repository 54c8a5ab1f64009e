"""GELU, or the gated unit gelu(value)·gate, in one kernel each way.  n rows, f inner width.

Torch computes erf by branches that cost more than the memory does, and the gradient of a gated unit
twice over. The bias of the product before may be added here, where it costs nothing: on the way
back its gradient, the sums of the columns, falls out of what is written anyway.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Stretch(NamedTuple):
    """What a program takes; `python bench/cuts.py` times others."""

    numbers: int  # of a row, at a time
    rows: int  # one after another
    warps: int
    stages: int  # rows that are on their way at once


FORWARD = Stretch(1024, 2, 4, 1)
REVERSE = Stretch(1024, 64, 4, 2)  # with a bias
REVERSE_PLAIN = Stretch(1024, 1, 4, 1)


@triton.jit
def _normal(x):
    """Φ(x) and its density φ(x), to 1e-7: Abramowitz and Stegun 1964, 7.1.26."""
    raised = tl.exp2(x * x * -0.7213475204444817)  # e^(−x²/2), of which both are made
    t = 1.0 + 0.2316418882 * tl.abs(x)
    t = tl.rsqrt(t * t)  # 1/t, in two steps; a division takes eight
    tail = 1.061405429 * t - 1.453152027
    tail = tail * t + 1.421413741
    tail = tail * t - 0.284496736
    tail = tail * t + 0.254829592
    tail = 0.5 * tail * t * raised  # Φ(−|x|)
    return tl.where(x < 0, tail, 1.0 - tail), raised * 0.3989422804014327


@triton.jit
def _gelu_forward(
    inner, bias, out, n, f,
    GATED: tl.constexpr, BIASED: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, width = tl.program_id(0).to(tl.int64) * ROWS, f * 2 if GATED else f
    if BIASED:
        lift = tl.load(bias + column, column < f).to(tl.float32)
        if GATED:
            gate_lift = tl.load(bias + f + column, column < f).to(tl.float32)
    for row in tl.range(first, tl.minimum(first + ROWS, n), num_stages=STAGES):
        at = inner + row * width + column
        x = tl.load(at, column < f).to(tl.float32)
        if BIASED:
            x += lift
        phi, _ = _normal(x)
        y = x * phi
        if GATED:
            gate = tl.load(at + f, column < f).to(tl.float32)
            y *= gate + gate_lift if BIASED else gate
        tl.store(out + row * f + column, y.to(out.dtype.element_ty), column < f)


@triton.jit
def _gelu_reverse(
    inner, bias, slope, grad, sums, n, f,
    GATED: tl.constexpr, BIASED: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient, and its sums over the rows of this program."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, width = tl.program_id(0).to(tl.int64) * ROWS, f * 2 if GATED else f
    if BIASED:
        lift = tl.load(bias + column, column < f).to(tl.float32)
        if GATED:
            gate_lift = tl.load(bias + f + column, column < f).to(tl.float32)
    kind = grad.dtype.element_ty
    total, gates = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(first, tl.minimum(first + ROWS, n), num_stages=STAGES):
        at = inner + row * width + column
        x = tl.load(at, column < f).to(tl.float32)
        if BIASED:
            x += lift
        dy = tl.load(slope + row * f + column, column < f).to(tl.float32)
        phi, density = _normal(x)
        dx = (phi + x * density) * dy
        to = grad + row * width + column
        if GATED:
            gate = tl.load(at + f, column < f).to(tl.float32)
            dx *= gate + gate_lift if BIASED else gate
            d_gate = x * phi * dy
            tl.store(to + f, d_gate.to(kind), column < f)
            gates += d_gate
        tl.store(to, dx.to(kind), column < f)
        total += dx
    if BIASED:
        at = sums + tl.program_id(0) * width + column
        tl.store(at, total, column < f)
        if GATED:
            tl.store(at + f, gates, column < f)


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    narrow: Tensor,
    gated: bool,
    biased: bool,
    stretch: Stretch,
) -> None:
    f = narrow.shape[-1]
    n = narrow.numel() // f
    kernel[(triton.cdiv(n, stretch.rows), triton.cdiv(f, stretch.numbers))](
        *(*tensors, n, f),
        GATED=gated,
        BIASED=biased,
        BLOCK=stretch.numbers,
        ROWS=stretch.rows,
        STAGES=stretch.stages,
        num_warps=stretch.warps,
    )


def _out(inner: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    return inner.new_empty(*inner.shape[:-1], inner.shape[-1] // (2 if gated else 1))


@torch.library.custom_op("cloze::gelu", mutates_args=())
def gelu(inner: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    """Φ(x)·x of each number, x with the bias; gated: of each row's first half, times the second."""
    inner, out = inner.contiguous(), _out(inner, bias, gated)
    tensors = (inner, inner if bias is None else bias, out)
    _launch(_gelu_forward, tensors, out, gated, bias is not None, FORWARD)
    return out


@torch.library.custom_op("cloze::gelu_backward", mutates_args=())
def _gelu_backward(
    inner: Tensor, bias: Tensor | None, slope: Tensor, gated: bool
) -> tuple[Tensor, Tensor]:
    """Of inner, and of the bias (nothing where there is none)."""
    inner, slope = inner.contiguous(), slope.contiguous()
    grad = torch.empty_like(inner)
    if bias is None:
        tensors = (inner, inner, slope, grad, grad)
        _launch(_gelu_reverse, tensors, slope, gated, False, REVERSE_PLAIN)
        return grad, inner.new_empty(0)
    width = inner.shape[-1]
    teams = triton.cdiv(inner.numel() // width, REVERSE.rows)
    sums = inner.new_empty(teams, width, dtype=torch.float32)
    _launch(_gelu_reverse, (inner, bias, slope, grad, sums), slope, gated, True, REVERSE)
    return grad, sums.sum(0).to(bias.dtype)


def _grads(inner: Tensor, bias: Tensor | None, slope: Tensor, gated: bool) -> tuple[Tensor, Tensor]:
    of_bias = inner.new_empty(0) if bias is None else torch.empty_like(bias)
    return torch.empty_like(inner.contiguous()), of_bias


gelu.register_fake(_out)
_gelu_backward.register_fake(_grads)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    inner, bias, ctx.gated = inputs
    ctx.save_for_backward(inner, bias)


def _back(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    inner, bias = ctx.saved_tensors
    of_inner, of_bias = _gelu_backward(inner, bias, slope, ctx.gated)
    return of_inner, None if bias is None else of_bias, None


gelu.register_autograd(_back, setup_context=_keep)
