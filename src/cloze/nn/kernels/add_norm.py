"""LayerNorm(x + dropout(y)): one kernel forward, one backward.  n rows, d width.

The dropout mask is drawn again in the backward pass, so only the sum is saved. If y is the output
of a linear layer, the gradient of its bias (the column sums of y's gradient) is computed as well.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from cloze.nn.kernels.dropout import dropout_factors, row_bits


class ForwardTile(NamedTuple):
    """The part of the input that a program of the forward pass computes."""

    elements: int  # of whole rows
    warps: int


class BackwardGrid(NamedTuple):
    """The division of the backward pass; `python bench/tiles.py` times alternatives."""

    programs: int  # that divide the rows, each with its partial sums of the weights' gradients
    warps: int
    stages: int  # rows that are loaded ahead


FORWARD = ForwardTile(2048, 2)
BACKWARD = BackwardGrid(264, 4, 3)


@triton.jit
def _add_norm_forward_kernel(
    x, added, weight, bias, seed, out, total, mean, scale, n, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (columns < WIDTH)[None, :]
    real = (rows < n)[:, None] & inside
    at = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    y = tl.load(added + at, real, 0.0).to(tl.float32)
    if P > 0:
        y *= dropout_factors(row_bits(seed, rows), 0, BLOCK, P)
    dtype = total.dtype.element_ty
    z = (tl.load(x + at, real, 0.0).to(tl.float32) + y).to(dtype).to(tl.float32)
    mu = tl.sum(z, 1) / WIDTH
    centred = tl.where(inside, z - mu[:, None], 0.0)
    r = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    w = tl.load(weight + columns, columns < WIDTH, 0.0).to(tl.float32)
    b = tl.load(bias + columns, columns < WIDTH, 0.0).to(tl.float32)
    normed = centred * r[:, None] * w[None, :] + b[None, :]
    tl.store(total + at, z.to(dtype), real)
    tl.store(out + at, normed.to(dtype), real)
    tl.store(mean + rows, mu, rows < n)
    tl.store(scale + rows, r, rows < n)


@triton.jit
def _append(parts, part):
    return parts + (part,)  # noqa: RUF005 (Triton has no *)


@triton.jit
def _zeros(ROWS: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr):
    parts = ()
    for _ in tl.static_range(PARTS):
        parts = _append(parts, tl.zeros((ROWS, PART), tl.float32))
    return parts


@triton.jit
def _add_norm_backward_kernel(
    grad_out, total, weight, seed, mean, scale,
    grad_x, grad_added, grad_weight, grad_bias, grad_added_bias, n,
    WIDTH: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr, P: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """A row is divided into parts that one warp loads, so that it sums without the others."""
    program, columns = tl.program_id(0), tl.arange(0, PART)
    weights, biases = _zeros(ROWS, PART, PARTS), _zeros(ROWS, PART, PARTS)
    added_bias_sums = _zeros(ROWS, PART, PARTS)
    dtype = grad_x.dtype.element_ty
    for first in tl.range(program * ROWS, n, tl.num_programs(0) * ROWS, num_stages=STAGES):
        rows = first + tl.arange(0, ROWS)
        mu, r = tl.load(mean + rows, rows < n, 0.0), tl.load(scale + rows, rows < n, 0.0)
        at = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        row_dot, row_mean = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
        grads, normed, more_weights, more_biases = (), (), (), ()
        for part in tl.static_range(PARTS):
            column = part * PART + columns
            real = (rows < n)[:, None] & (column < WIDTH)[None, :]
            dy = tl.load(grad_out + at + part * PART, real, 0.0).to(tl.float32)
            z = tl.load(total + at + part * PART, real, 0.0).to(tl.float32)
            z = (z - mu[:, None]) * r[:, None]
            more_weights = _append(more_weights, weights[part] + dy * z)
            more_biases = _append(more_biases, biases[part] + dy)
            dy *= tl.load(weight + column, column < WIDTH, 0.0).to(tl.float32)[None, :]
            row_dot += tl.sum(dy * z, 1)
            row_mean += tl.sum(dy, 1)
            grads, normed = _append(grads, dy), _append(normed, z)
        weights, biases = more_weights, more_biases
        row_dot, row_mean, bits = row_dot / WIDTH, row_mean / WIDTH, row_bits(seed, rows)
        more_added_bias_sums = ()
        for part in tl.static_range(PARTS):
            column = part * PART + columns
            real = (rows < n)[:, None] & (column < WIDTH)[None, :]
            dz = (grads[part] - normed[part] * row_dot[:, None] - row_mean[:, None]) * r[:, None]
            tl.store(grad_x + at + part * PART, dz.to(dtype), real)
            if P > 0:
                dz *= dropout_factors(bits, part * PART, PART, P)
                tl.store(grad_added + at + part * PART, dz.to(dtype), real)
            more_added_bias_sums = _append(more_added_bias_sums, added_bias_sums[part] + dz)
        added_bias_sums = more_added_bias_sums
    for part in tl.static_range(PARTS):
        column = part * PART + columns
        at = program * WIDTH + column
        tl.store(grad_weight + at, tl.sum(weights[part], 0), column < WIDTH)
        tl.store(grad_bias + at, tl.sum(biases[part], 0), column < WIDTH)
        if HAS_BIAS:
            tl.store(grad_added_bias + at, tl.sum(added_bias_sums[part], 0), column < WIDTH)


def _divide_row(width: int) -> tuple[int, int]:
    """The width of the parts of a row, and their number.

    The width is a power of 2 that leaves few threads idle, and no more than a warp loads at once;
    but there are no more than 8 parts.
    """
    size = min(width & -width, 256)
    size = max(16, size, triton.next_power_of_2(triton.cdiv(width, 8)))
    return size, triton.cdiv(width, size)


def compute_add_norm(
    x: Tensor,
    added: Tensor,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor,
    added_bias: Tensor | None,
    eps: float,
    p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The normalized sum, then what the backward pass needs: the sum, its means and its scales.

    `added_bias` is the bias of the linear layer that computed `added`, which contains it already
    (detached): it is passed for its gradient.
    """
    x, added = x.contiguous(), added.contiguous()
    outputs = _empty_outputs(x)
    width = x.shape[-1]
    block = triton.next_power_of_2(width)
    n, rows = x.numel() // width, max(1, FORWARD.elements // block)
    _add_norm_forward_kernel[(triton.cdiv(n, rows),)](
        *(x, added, weight, bias, seed, *outputs, n, eps),
        WIDTH=width,
        BLOCK=block,
        ROWS=rows,
        P=p,
        num_warps=FORWARD.warps,
    )
    return outputs


def _empty_outputs(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x.new_empty(x.shape[:-1], dtype=torch.float32)
    return x.new_empty(x.shape), x.new_empty(x.shape), rows, torch.empty_like(rows)


@torch.library.custom_op("cloze::add_norm_backward", mutates_args=())
def _add_norm_backward(
    grad_out: Tensor,
    total: Tensor,
    weight: Tensor,
    seed: Tensor,
    added_bias: Tensor | None,
    mean: Tensor,
    scale: Tensor,
    p: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, added (empty if the same), weight, bias and added_bias."""
    grad_out = grad_out.contiguous()
    width = total.shape[-1]
    size, count = _divide_row(width)
    n, rows = total.numel() // width, max(1, BACKWARD.warps * 256 // size)  # 8 elements per thread
    programs = min(BACKWARD.programs, triton.cdiv(n, rows))
    inputs = (grad_out, total, weight, seed, added_bias, mean, scale, p)
    grad_x, grad_added, *_ = _empty_gradients(*inputs)
    parts = mean.new_empty(2 if added_bias is None else 3, programs, width)
    _add_norm_backward_kernel[(programs,)](
        *(grad_out, total, weight, seed, mean, scale, grad_x, grad_added),
        *(*parts[:2], parts[-1], n),
        WIDTH=width,
        PART=size,
        PARTS=count,
        ROWS=rows,
        STAGES=BACKWARD.stages,
        P=p,
        HAS_BIAS=added_bias is not None,
        num_warps=BACKWARD.warps,
    )
    sums = [one.clone() for one in parts.sum(1).to(weight.dtype)]
    grad_added_bias = weight.new_empty(0) if added_bias is None else sums[2].to(added_bias.dtype)
    return grad_x, grad_added, sums[0], sums[1], grad_added_bias


def _empty_gradients(
    grad_out: Tensor,
    total: Tensor,
    weight: Tensor,
    seed: Tensor,
    added_bias: Tensor | None,
    *more: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_added = total.new_empty(total.shape if more[-1] > 0 else (0,))
    grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(weight)
    grad_added_bias = weight.new_empty(0) if added_bias is None else torch.empty_like(added_bias)
    return torch.empty_like(total), grad_added, grad_weight, grad_bias, grad_added_bias


add_norm = torch.library.custom_op("cloze::add_norm", compute_add_norm, mutates_args=())
add_norm.register_fake(_empty_outputs)
_add_norm_backward.register_fake(_empty_gradients)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, _, seed, added_bias, _, ctx.p = inputs
    _, total, mean, scale = output
    ctx.mark_non_differentiable(total, mean, scale)
    ctx.save_for_backward(total, weight, seed, added_bias, mean, scale)


def _backward(ctx: Any, grad_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    gradients = _add_norm_backward(grad_out, *ctx.saved_tensors, ctx.p)
    grad_x, grad_added, *others, grad_added_bias = gradients
    grad_added = grad_added if ctx.p > 0 else grad_x
    bias = grad_added_bias if grad_added_bias.numel() else None
    return grad_x, grad_added, *others, None, bias, None, None


add_norm.register_autograd(_backward, setup_context=_setup_context)
