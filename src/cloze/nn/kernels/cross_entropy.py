"""The cross-entropy over a vocabulary and its gradient in one kernel.  m positions, v vocabulary.

A program reads the row of logits of one position twice: for its sum, and, while it is still in the
cache, for the gradient.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 4096, 8  # logits of a row at a time
LOG2_E = 1.4426950408889634  # log₂ e: the chip computes powers of 2


@triton.jit
def _cross_entropy_kernel(
    logits, targets, losses, hits, grad, v,
    LOG2_E: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    own = tl.load(targets + row)
    is_target = own >= 0
    target = tl.where(is_target, own, 0)
    logits += row.to(tl.int64) * v
    grad += row.to(tl.int64) * v
    target_logit = tl.load(logits + target).to(tl.float32)
    columns = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -1e30, tl.float32)  # not −∞, from which nothing can be subtracted
    sums = tl.zeros((BLOCK,), tl.float32)
    better = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, v, BLOCK):
        column = first + columns
        x = tl.load(logits + column, column < v, -float("inf")).to(tl.float32)
        better |= ((x > target_logit) | ((x == target_logit) & (column < target))).to(tl.int32)
        higher = tl.maximum(tops, x * LOG2_E)
        sums = sums * tl.exp2(tops - higher) + tl.exp2(x * LOG2_E - higher)
        tops = higher
    top = tl.max(tops, 0)
    log = top + tl.log2(tl.sum(sums * tl.exp2(tops - top), 0))
    tl.store(losses + row, tl.where(is_target, log / LOG2_E - target_logit, 0.0))
    tl.store(hits + row, tl.where(is_target & (tl.max(better, 0) == 0), 1.0, 0.0))
    for first in range(0, v, BLOCK):
        column = first + columns
        x = tl.load(logits + column, column < v, -float("inf")).to(tl.float32)
        slope = tl.exp2(x * LOG2_E - log) - tl.where(column == target, 1.0, 0.0)
        slope = tl.where(is_target, slope, 0.0)
        tl.store(grad + column, slope.to(grad.dtype.element_ty), column < v)


def _empty_outputs(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    losses = logits.new_empty(len(logits), dtype=torch.float32)
    return losses, torch.empty_like(losses), torch.empty_like(logits)


@torch.library.custom_op("cloze::cross_entropy", mutates_args=())
def cross_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """−log softmax(logits)[target] of each position, whether its logit is the top one, gradients.

    Targets below 0 are ignored. Of equal logits the first counts as the highest.
    """
    logits = logits.contiguous()
    outputs: Any = _empty_outputs(logits, targets)
    _cross_entropy_kernel[(len(logits),)](
        *(logits, targets.contiguous(), *outputs, logits.shape[-1]),
        LOG2_E=LOG2_E,
        BLOCK=min(BLOCK, triton.next_power_of_2(logits.shape[-1])),
        num_warps=WARPS,
    )
    return outputs


cross_entropy.register_fake(_empty_outputs)
