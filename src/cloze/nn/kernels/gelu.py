"""GELU, or the gated unit gelu(value)·gate, in one kernel each way.  n rows, f inner width.

Torch computes erf by branches that cost more than the memory does, and the gradient of a gated unit
twice over.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024  # numbers at a time


@triton.jit
def _normal(x):
    """Φ(x) and its density φ(x), to 1e-7: Abramowitz and Stegun 1964, 7.1.26."""
    raised = tl.exp2(x * x * -0.7213475204444817)  # e^(−x²/2), of which both are made
    t = 1.0 / (1.0 + 0.2316418882 * tl.abs(x))
    tail = 1.061405429 * t - 1.453152027
    tail = tail * t + 1.421413741
    tail = tail * t - 0.284496736
    tail = tail * t + 0.254829592
    tail = 0.5 * tail * t * raised  # Φ(−|x|)
    return tl.where(x < 0, tail, 1.0 - tail), raised * 0.3989422804014327


@triton.jit
def _gelu_forward(inner, out, f, GATED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = column < f
    at = inner + row * f * (2 if GATED else 1) + column
    x = tl.load(at, real).to(tl.float32)
    phi, _ = _normal(x)
    y = x * phi
    if GATED:
        y *= tl.load(at + f, real).to(tl.float32)
    tl.store(out + row * f + column, y.to(out.dtype.element_ty), real)


@triton.jit
def _gelu_reverse(inner, slope, grad, f, GATED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = column < f
    place = row * f * (2 if GATED else 1) + column
    x = tl.load(inner + place, real).to(tl.float32)
    dy = tl.load(slope + row * f + column, real).to(tl.float32)
    phi, density = _normal(x)
    dx = (phi + x * density) * dy
    if GATED:
        dx *= tl.load(inner + place + f, real).to(tl.float32)
        tl.store(grad + place + f, (x * phi * dy).to(grad.dtype.element_ty), real)
    tl.store(grad + place, dx.to(grad.dtype.element_ty), real)


def _launch(kernel: Any, tensors: tuple[Tensor, ...], narrow: Tensor, gated: bool) -> None:
    f = narrow.shape[-1]
    grid = (narrow.numel() // f, triton.cdiv(f, _BLOCK))
    kernel[grid](*tensors, f, GATED=gated, BLOCK=_BLOCK, num_warps=4)


def _out(inner: Tensor, gated: bool) -> Tensor:
    return inner.new_empty(*inner.shape[:-1], inner.shape[-1] // (2 if gated else 1))


@torch.library.custom_op("cloze::gelu", mutates_args=())
def gelu(inner: Tensor, gated: bool) -> Tensor:
    """Φ(x)·x of each number; gated: that of the first half of each row times the second half."""
    inner, out = inner.contiguous(), _out(inner, gated)
    _launch(_gelu_forward, (inner, out), out, gated)
    return out


@torch.library.custom_op("cloze::gelu_backward", mutates_args=())
def _gelu_backward(inner: Tensor, slope: Tensor, gated: bool) -> Tensor:
    inner, slope = inner.contiguous(), slope.contiguous()
    grad = torch.empty_like(inner)
    _launch(_gelu_reverse, (inner, slope, grad), slope, gated)
    return grad


gelu.register_fake(_out)
_gelu_backward.register_fake(lambda inner, slope, gated: torch.empty_like(inner.contiguous()))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    inner, ctx.gated = inputs
    ctx.save_for_backward(inner)


def _back(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
    return _gelu_backward(*ctx.saved_tensors, slope, ctx.gated), None


gelu.register_autograd(_back, setup_context=_keep)
