"""The cross-entropy of words and its gradient in one kernel.  m places, v words.

A program takes a place's whole row of scores twice: for its sum, and, while it is still in the
cache, for the gradient.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WORDS, WARPS = 4096, 8  # of a row at a time
_TO_2 = 1.4426950408889634  # log₂ e: powers of 2 are what the chip has


@triton.jit
def _cross_entropy(
    scores, targets, losses, hits, slope, v,
    STEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    own = tl.load(targets + row)
    asked = own >= 0
    wanted = tl.where(asked, own, 0)
    scores += row.to(tl.int64) * v
    slope += row.to(tl.int64) * v
    goal = tl.load(scores + wanted).to(tl.float32)
    words = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -1e30, tl.float32)  # not −∞, from which nothing can be taken
    sums = tl.zeros((BLOCK,), tl.float32)
    better = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, v, BLOCK):
        word = first + words
        x = tl.load(scores + word, word < v, -float("inf")).to(tl.float32)
        better |= ((x > goal) | ((x == goal) & (word < wanted))).to(tl.int32)
        higher = tl.maximum(tops, x * STEEP)
        sums = sums * tl.exp2(tops - higher) + tl.exp2(x * STEEP - higher)
        tops = higher
    top = tl.max(tops, 0)
    log = top + tl.log2(tl.sum(sums * tl.exp2(tops - top), 0))
    tl.store(losses + row, tl.where(asked, log / STEEP - goal, 0.0))
    tl.store(hits + row, tl.where(asked & (tl.max(better, 0) == 0), 1.0, 0.0))
    for first in range(0, v, BLOCK):
        word = first + words
        x = tl.load(scores + word, word < v, -float("inf")).to(tl.float32)
        found = tl.exp2(x * STEEP - log) - tl.where(word == wanted, 1.0, 0.0)
        found = tl.where(asked, found, 0.0)
        tl.store(slope + word, found.to(slope.dtype.element_ty), word < v)


def _found(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    losses = scores.new_empty(len(scores), dtype=torch.float32)
    return losses, torch.empty_like(losses), torch.empty_like(scores)


@torch.library.custom_op("cloze::cross_entropy", mutates_args=())
def cross_entropy(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """−log softmax(scores)[target] of each place, whether no word scores higher, and the gradient.

    A target below 0 is none. Of words with the same score the first counts as the highest.
    """
    scores = scores.contiguous()
    found: Any = _found(scores, targets)
    _cross_entropy[(len(scores),)](
        *(scores, targets.contiguous(), *found, scores.shape[-1]),
        STEEP=_TO_2,
        BLOCK=min(WORDS, triton.next_power_of_2(scores.shape[-1])),
        num_warps=WARPS,
    )
    return found


cross_entropy.register_fake(_found)
