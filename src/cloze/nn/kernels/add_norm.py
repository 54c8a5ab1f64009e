"""LayerNorm(x + dropout(y)) in one kernel each way.  n rows, d width.

The mask is drawn again on the way back, so all that is kept is the sum.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from cloze.nn.kernels.bits import factors

_NUMBERS = 4096  # of a tile
_TEAMS = 512  # that share the rows on the way back, each with its part of the weights' gradients


@triton.jit
def _add_norm_forward(
    x, added, weight, bias, seed, out, total, mean, scale, n, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (columns < WIDTH)[None, :]
    real = (rows < n)[:, None] & inside
    at = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    y = tl.load(added + at, real, 0.0).to(tl.float32)
    if SHARE > 0:
        y *= factors(seed, rows, columns, SHARE)
    kind = total.dtype.element_ty
    z = (tl.load(x + at, real, 0.0).to(tl.float32) + y).to(kind).to(tl.float32)
    mu = tl.sum(z, 1) / WIDTH
    centred = tl.where(inside, z - mu[:, None], 0.0)
    r = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / WIDTH + eps)
    w = tl.load(weight + columns, columns < WIDTH, 0.0).to(tl.float32)
    b = tl.load(bias + columns, columns < WIDTH, 0.0).to(tl.float32)
    normed = centred * r[:, None] * w[None, :] + b[None, :]
    tl.store(total + at, z.to(kind), real)
    tl.store(out + at, normed.to(kind), real)
    tl.store(mean + rows, mu, rows < n)
    tl.store(scale + rows, r, rows < n)


@triton.jit
def _add_norm_reverse(
    slope, total, weight, seed, mean, scale, of_x, of_added, of_weight, of_bias, n,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    team, columns = tl.program_id(0), tl.arange(0, BLOCK)
    inside = (columns < WIDTH)[None, :]
    w = tl.load(weight + columns, columns < WIDTH, 0.0).to(tl.float32)[None, :]
    weights = tl.zeros((ROWS, BLOCK), tl.float32)
    biases = tl.zeros((ROWS, BLOCK), tl.float32)
    kind = of_x.dtype.element_ty
    for first in range(team * ROWS, n, tl.num_programs(0) * ROWS):
        rows = first + tl.arange(0, ROWS)
        real = (rows < n)[:, None] & inside
        at = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        dy = tl.load(slope + at, real, 0.0).to(tl.float32)
        mu, r = tl.load(mean + rows, rows < n, 0.0), tl.load(scale + rows, rows < n, 0.0)
        z = tl.load(total + at, real, 0.0).to(tl.float32)
        normed = tl.where(real, (z - mu[:, None]) * r[:, None], 0.0)
        weights += dy * normed
        biases += dy
        dy *= w
        along = tl.sum(dy * normed, 1) / WIDTH
        dz = (dy - normed * along[:, None] - (tl.sum(dy, 1) / WIDTH)[:, None]) * r[:, None]
        tl.store(of_x + at, dz.to(kind), real)
        if SHARE > 0:
            tl.store(of_added + at, (dz * factors(seed, rows, columns, SHARE)).to(kind), real)
    at = team * WIDTH + columns
    tl.store(of_weight + at, tl.sum(weights, 0), columns < WIDTH)
    tl.store(of_bias + at, tl.sum(biases, 0), columns < WIDTH)


def _tile(width: int, share: float) -> dict[str, Any]:
    block = triton.next_power_of_2(width)
    rows = max(1, _NUMBERS // block)
    return {"WIDTH": width, "BLOCK": block, "ROWS": rows, "SHARE": share}


@torch.library.custom_op("cloze::add_norm", mutates_args=())
def add_norm(
    x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, eps: float, share: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The normed sum, then what the way back needs: the sum, its means and its scales."""
    x, added = x.contiguous(), added.contiguous()
    found = _found(x)
    tile = _tile(x.shape[-1], share)
    n = x.numel() // x.shape[-1]
    grid = (triton.cdiv(n, tile["ROWS"]),)
    _add_norm_forward[grid](x, added, weight, bias, seed, *found, n, eps, **tile, num_warps=4)
    return found


def _found(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x.new_empty(x.shape[:-1], dtype=torch.float32)
    return x.new_empty(x.shape), x.new_empty(x.shape), rows, torch.empty_like(rows)


@torch.library.custom_op("cloze::add_norm_backward", mutates_args=())
def _add_norm_backward(
    slope: Tensor,
    total: Tensor,
    weight: Tensor,
    seed: Tensor,
    mean: Tensor,
    scale: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of x, of what is added (nothing where it is the same), of weight and bias."""
    slope = slope.contiguous()
    width = total.shape[-1]
    tile = _tile(width, share)
    n = total.numel() // width
    teams = min(_TEAMS, triton.cdiv(n, tile["ROWS"]))
    of_x, of_added, *_ = _grads(slope, total, weight, seed, mean, scale, share)
    parts = mean.new_empty(2, teams, width)
    _add_norm_reverse[(teams,)](
        *(slope, total, weight, seed, mean, scale, of_x, of_added, *parts, n), **tile, num_warps=8
    )
    of_weight, of_bias = parts.sum(1).to(weight.dtype).unbind()
    return of_x, of_added, of_weight.clone(), of_bias.clone()


def _grads(
    slope: Tensor, total: Tensor, weight: Tensor, *more: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_added = total.new_empty(total.shape if more[-1] > 0 else (0,))
    return torch.empty_like(total), of_added, torch.empty_like(weight), torch.empty_like(weight)


add_norm.register_fake(_found)
_add_norm_backward.register_fake(_grads)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, _, seed, _, ctx.share = inputs
    _, total, mean, scale = output
    ctx.mark_non_differentiable(total, mean, scale)
    ctx.save_for_backward(total, weight, seed, mean, scale)


def _back(ctx: Any, slope: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    of_x, of_added, of_weight, of_bias = _add_norm_backward(slope, *ctx.saved_tensors, ctx.share)
    of_added = of_added if ctx.share > 0 else of_x
    return of_x, of_added, of_weight, of_bias, None, None, None


add_norm.register_autograd(_back, setup_context=_keep)
