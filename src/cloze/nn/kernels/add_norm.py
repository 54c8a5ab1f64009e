"""LayerNorm(x + dropout(y)) in one kernel each way.  n rows, d width.

The mask is drawn again on the way back, so all that is kept is the sum. If y is a product's answer,
the gradient of its bias, the sums of the columns of y's, falls out of what is written anyway.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from cloze.nn.kernels.bits import factors, lots


class Tile(NamedTuple):
    """What a program takes on the way there."""

    numbers: int  # of whole rows
    warps: int


class Teams(NamedTuple):
    """How the way back is shared out; `python bench/cuts.py` times others."""

    amount: int  # that share the rows, each with its part of the weights' gradients
    warps: int
    stages: int  # rows that are on their way at once


FORWARD = Tile(2048, 2)
REVERSE = Teams(264, 4, 3)


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
        y *= factors(lots(seed, rows), 0, BLOCK, SHARE)
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
def _more(parts, part):
    return parts + (part,)  # noqa: RUF005 (Triton knows no *)


@triton.jit
def _nothing(ROWS: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr):
    parts = ()
    for _ in tl.static_range(PARTS):
        parts = _more(parts, tl.zeros((ROWS, PART), tl.float32))
    return parts


@triton.jit
def _add_norm_reverse(
    slope, total, weight, seed, mean, scale, of_x, of_added, of_weight, of_bias, of_lift, n,
    WIDTH: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr,
    STAGES: tl.constexpr, SHARE: tl.constexpr, LIFTED: tl.constexpr,
):  # fmt: skip
    """A row is cut into parts that a warp reads at once, so that it adds up without the others."""
    team, columns = tl.program_id(0), tl.arange(0, PART)
    weights, biases = _nothing(ROWS, PART, PARTS), _nothing(ROWS, PART, PARTS)
    lifts = _nothing(ROWS, PART, PARTS)
    kind = of_x.dtype.element_ty
    for first in tl.range(team * ROWS, n, tl.num_programs(0) * ROWS, num_stages=STAGES):
        rows = first + tl.arange(0, ROWS)
        mu, r = tl.load(mean + rows, rows < n, 0.0), tl.load(scale + rows, rows < n, 0.0)
        at = rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
        along, level = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
        slopes, normed, more_weights, more_biases = (), (), (), ()
        for part in tl.static_range(PARTS):
            column = part * PART + columns
            real = (rows < n)[:, None] & (column < WIDTH)[None, :]
            dy = tl.load(slope + at + part * PART, real, 0.0).to(tl.float32)
            z = tl.load(total + at + part * PART, real, 0.0).to(tl.float32)
            z = (z - mu[:, None]) * r[:, None]
            more_weights = _more(more_weights, weights[part] + dy * z)
            more_biases = _more(more_biases, biases[part] + dy)
            dy *= tl.load(weight + column, column < WIDTH, 0.0).to(tl.float32)[None, :]
            along += tl.sum(dy * z, 1)
            level += tl.sum(dy, 1)
            slopes, normed = _more(slopes, dy), _more(normed, z)
        weights, biases = more_weights, more_biases
        along, level, lot = along / WIDTH, level / WIDTH, lots(seed, rows)
        more_lifts = ()
        for part in tl.static_range(PARTS):
            column = part * PART + columns
            real = (rows < n)[:, None] & (column < WIDTH)[None, :]
            dz = (slopes[part] - normed[part] * along[:, None] - level[:, None]) * r[:, None]
            tl.store(of_x + at + part * PART, dz.to(kind), real)
            if SHARE > 0:
                dz *= factors(lot, part * PART, PART, SHARE)
                tl.store(of_added + at + part * PART, dz.to(kind), real)
            more_lifts = _more(more_lifts, lifts[part] + dz)
        lifts = more_lifts
    for part in tl.static_range(PARTS):
        column = part * PART + columns
        at = team * WIDTH + column
        tl.store(of_weight + at, tl.sum(weights[part], 0), column < WIDTH)
        tl.store(of_bias + at, tl.sum(biases[part], 0), column < WIDTH)
        if LIFTED:
            tl.store(of_lift + at, tl.sum(lifts[part], 0), column < WIDTH)


def _parts(width: int) -> tuple[int, int]:
    """How wide the parts of a row are, and how many.

    A power of 2 that leaves few idle, no wider than a warp reads at once; but no more than 8 parts.
    """
    size = min(width & -width, 256)
    size = max(16, size, triton.next_power_of_2(triton.cdiv(width, 8)))
    return size, triton.cdiv(width, size)


@torch.library.custom_op("cloze::add_norm", mutates_args=())
def add_norm(
    x: Tensor,
    added: Tensor,
    weight: Tensor,
    bias: Tensor,
    seed: Tensor,
    lift: Tensor | None,
    eps: float,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The normed sum, then what the way back needs: the sum, its means and its scales.

    `lift` is the bias of the product that is added, which has it already (detached): it is given
    here for its gradient.
    """
    x, added = x.contiguous(), added.contiguous()
    found = _found(x)
    width = x.shape[-1]
    block = triton.next_power_of_2(width)
    n, rows = x.numel() // width, max(1, FORWARD.numbers // block)
    _add_norm_forward[(triton.cdiv(n, rows),)](
        *(x, added, weight, bias, seed, *found, n, eps),
        WIDTH=width,
        BLOCK=block,
        ROWS=rows,
        SHARE=share,
        num_warps=FORWARD.warps,
    )
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
    lift: Tensor | None,
    mean: Tensor,
    scale: Tensor,
    share: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Of x, of what is added (nothing where it is the same), of weight, bias and lift."""
    slope = slope.contiguous()
    width = total.shape[-1]
    size, amount = _parts(width)
    n, rows = total.numel() // width, max(1, REVERSE.warps * 256 // size)  # 8 numbers a thread
    teams = min(REVERSE.amount, triton.cdiv(n, rows))
    of_x, of_added, *_ = _grads(slope, total, weight, seed, lift, mean, scale, share)
    parts = mean.new_empty(2 if lift is None else 3, teams, width)
    _add_norm_reverse[(teams,)](
        *(slope, total, weight, seed, mean, scale, of_x, of_added),
        *(*parts[:2], parts[-1], n),
        WIDTH=width,
        PART=size,
        PARTS=amount,
        ROWS=rows,
        STAGES=REVERSE.stages,
        SHARE=share,
        LIFTED=lift is not None,
        num_warps=REVERSE.warps,
    )
    sums = [one.clone() for one in parts.sum(1).to(weight.dtype)]
    of_lift = weight.new_empty(0) if lift is None else sums[2].to(lift.dtype)
    return of_x, of_added, sums[0], sums[1], of_lift


def _grads(
    slope: Tensor, total: Tensor, weight: Tensor, seed: Tensor, lift: Tensor | None, *more: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    of_added = total.new_empty(total.shape if more[-1] > 0 else (0,))
    of_weight, of_bias = torch.empty_like(weight), torch.empty_like(weight)
    of_lift = weight.new_empty(0) if lift is None else torch.empty_like(lift)
    return torch.empty_like(total), of_added, of_weight, of_bias, of_lift


add_norm.register_fake(_found)
_add_norm_backward.register_fake(_grads)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, _, seed, lift, _, ctx.share = inputs
    _, total, mean, scale = output
    ctx.mark_non_differentiable(total, mean, scale)
    ctx.save_for_backward(total, weight, seed, lift, mean, scale)


def _back(ctx: Any, slope: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    of_x, of_added, *others, of_lift = _add_norm_backward(slope, *ctx.saved_tensors, ctx.share)
    of_added = of_added if ctx.share > 0 else of_x
    return of_x, of_added, *others, None, of_lift if of_lift.numel() else None, None, None


add_norm.register_autograd(_back, setup_context=_keep)
