"""GELU, or the gated unit gelu(value)·gate: one kernel forward, one backward.

torch computes erf with branches that take longer than the memory access, and part of a gated unit's
gradient twice. The bias of the linear layer before can be added here at no cost; its gradient (the
column sums) is computed as well. n rows, f inner width.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """The part of the input that a program computes; `python bench/tiles.py` times alternatives."""

    columns: int  # at a time
    rows: int  # one after another
    warps: int
    stages: int  # rows that are loaded ahead


FORWARD = Tile(1024, 2, 4, 1)
BACKWARD = Tile(1024, 64, 4, 2)  # with a bias
BACKWARD_PLAIN = Tile(1024, 1, 4, 1)


@triton.jit
def _normal_cdf(x):
    """Φ(x) and its density φ(x), to 1e-7: Abramowitz and Stegun 1964, 7.1.26."""
    power = tl.exp2(x * x * -0.7213475204444817)  # e^(−x²/2), used by both
    t = 1.0 + 0.2316418882 * tl.abs(x)
    t = tl.rsqrt(t * t)  # 1/t, in two steps; a division takes eight
    tail = 1.061405429 * t - 1.453152027
    tail = tail * t + 1.421413741
    tail = tail * t - 0.284496736
    tail = tail * t + 0.254829592
    tail = 0.5 * tail * t * power  # Φ(−|x|)
    return tl.where(x < 0, tail, 1.0 - tail), power * 0.3989422804014327


@triton.jit
def _gelu_forward_kernel(
    inner, bias, out, n, f,
    GATED: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, width = tl.program_id(0).to(tl.int64) * ROWS, f * 2 if GATED else f
    if HAS_BIAS:
        added = tl.load(bias + column, column < f).to(tl.float32)
        if GATED:
            gate_added = tl.load(bias + f + column, column < f).to(tl.float32)
    for row in tl.range(first, tl.minimum(first + ROWS, n), num_stages=STAGES):
        at = inner + row * width + column
        x = tl.load(at, column < f).to(tl.float32)
        if HAS_BIAS:
            x += added
        phi, _ = _normal_cdf(x)
        y = x * phi
        if GATED:
            gate = tl.load(at + f, column < f).to(tl.float32)
            y *= gate + gate_added if HAS_BIAS else gate
        tl.store(out + row * f + column, y.to(out.dtype.element_ty), column < f)


@triton.jit
def _gelu_backward_kernel(
    inner, bias, grad_out, grad, sums, n, f,
    GATED: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient, and its column sums over the rows of this program."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, width = tl.program_id(0).to(tl.int64) * ROWS, f * 2 if GATED else f
    if HAS_BIAS:
        added = tl.load(bias + column, column < f).to(tl.float32)
        if GATED:
            gate_added = tl.load(bias + f + column, column < f).to(tl.float32)
    dtype = grad.dtype.element_ty
    total, gates = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(first, tl.minimum(first + ROWS, n), num_stages=STAGES):
        at = inner + row * width + column
        x = tl.load(at, column < f).to(tl.float32)
        if HAS_BIAS:
            x += added
        dy = tl.load(grad_out + row * f + column, column < f).to(tl.float32)
        phi, density = _normal_cdf(x)
        dx = (phi + x * density) * dy
        to = grad + row * width + column
        if GATED:
            gate = tl.load(at + f, column < f).to(tl.float32)
            dx *= gate + gate_added if HAS_BIAS else gate
            d_gate = x * phi * dy
            tl.store(to + f, d_gate.to(dtype), column < f)
            gates += d_gate
        tl.store(to, dx.to(dtype), column < f)
        total += dx
    if HAS_BIAS:
        at = sums + tl.program_id(0) * width + column
        tl.store(at, total, column < f)
        if GATED:
            tl.store(at + f, gates, column < f)


def _launch(
    kernel: Any,
    tensors: tuple[Tensor, ...],
    out: Tensor,
    gated: bool,
    has_bias: bool,
    tile: Tile,
) -> None:
    f = out.shape[-1]
    n = out.numel() // f
    kernel[(triton.cdiv(n, tile.rows), triton.cdiv(f, tile.columns))](
        *(*tensors, n, f),
        GATED=gated,
        HAS_BIAS=has_bias,
        BLOCK=tile.columns,
        ROWS=tile.rows,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )


def _empty_output(inner: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    return inner.new_empty(*inner.shape[:-1], inner.shape[-1] // (2 if gated else 1))


def compute_gelu(inner: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    """Φ(x)·x of each element, x with the bias; gated: of a row's first half, times the second."""
    inner, out = inner.contiguous(), _empty_output(inner, bias, gated)
    tensors = (inner, inner if bias is None else bias, out)
    _launch(_gelu_forward_kernel, tensors, out, gated, bias is not None, FORWARD)
    return out


@torch.library.custom_op("cloze::gelu_backward", mutates_args=())
def _gelu_backward(
    inner: Tensor, bias: Tensor | None, grad_out: Tensor, gated: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of inner and of the bias (empty if there is none)."""
    inner, grad_out = inner.contiguous(), grad_out.contiguous()
    grad = torch.empty_like(inner)
    if bias is None:
        tensors = (inner, inner, grad_out, grad, grad)
        _launch(_gelu_backward_kernel, tensors, grad_out, gated, False, BACKWARD_PLAIN)
        return grad, inner.new_empty(0)
    width = inner.shape[-1]
    programs = triton.cdiv(inner.numel() // width, BACKWARD.rows)
    sums = inner.new_empty(programs, width, dtype=torch.float32)
    _launch(
        _gelu_backward_kernel, (inner, bias, grad_out, grad, sums), grad_out, gated, True, BACKWARD
    )
    return grad, sums.sum(0).to(bias.dtype)


def _empty_gradients(
    inner: Tensor, bias: Tensor | None, grad_out: Tensor, gated: bool
) -> tuple[Tensor, Tensor]:
    grad_bias = inner.new_empty(0) if bias is None else torch.empty_like(bias)
    return torch.empty_like(inner.contiguous()), grad_bias


gelu = torch.library.custom_op("cloze::gelu", compute_gelu, mutates_args=())
gelu.register_fake(_empty_output)
_gelu_backward.register_fake(_empty_gradients)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    inner, bias, ctx.gated = inputs
    ctx.save_for_backward(inner, bias)


def _backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    inner, bias = ctx.saved_tensors
    grad_inner, grad_bias = _gelu_backward(inner, bias, grad_out, ctx.gated)
    return grad_inner, None if bias is None else grad_bias, None


gelu.register_autograd(_backward, setup_context=_setup_context)
