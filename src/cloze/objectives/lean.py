"""The cross-entropy of a large vocabulary in little memory.  m vectors, d width, v vocabulary.

The scores of all words for all masked places are the largest thing in a small model's step: with
30,000 words and 20,000 places 1.2 GB in bfloat16, and as much again for their gradient. Here they
are made for a few thousand places at a time, and turned at once into the gradients of the vectors
and of the table, so that no more than that is ever there (Hsu et al. 2024, Liger kernel).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.nn import kernels

ROWS = 8192  # places at a time
_ROUND = 64  # words: with 30,522 of them a GPU's products take three times as long as with 30,528
Judge: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor, Tensor]]


def lean_cross_entropy(
    vectors: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, *, rows: int = ROWS
) -> tuple[Tensor, Tensor]:
    """−Σ log softmax(vectors·tableᵀ + bias)[target], and how many targets score highest.

    Products are computed in the vectors' precision, the softmax in float32. Targets of NO_LABEL are
    left out.
    """
    asked = _Asked(targets, None, rows)
    loss, hits, _ = _LeanCrossEntropy.apply(vectors, table, bias, asked)  # type: ignore[no-untyped-call]
    return loss, hits


def lean_samples(
    vectors: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    draws: Tensor,
    *,
    rows: int = ROWS,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and for each vector a word drawn from its softmax: m ids, without a gradient.

    `draws` are m numbers from [0, 1); the word is where the sum of the probabilities passes them.
    """
    asked = _Asked(targets, draws, rows)
    found: tuple[Tensor, Tensor, Tensor] = _LeanCrossEntropy.apply(vectors, table, bias, asked)  # type: ignore[no-untyped-call]
    return found


class _Asked(NamedTuple):
    targets: Tensor
    draws: Tensor | None
    rows: int


class _LeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        vectors: Tensor,
        table: Tensor,
        bias: Tensor | None,
        asked: _Asked,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(vectors.device.type, enabled=False):
            return _forward(ctx, vectors, table, bias, asked)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        of_vectors, of_table, of_bias = ctx.saved_tensors
        return (
            of_vectors * grad.to(of_vectors.dtype),
            of_table * grad,
            None if of_bias is None else of_bias * grad,
            None,
        )


def _forward(
    ctx: Any,  # noqa: ANN401
    vectors: Tensor,
    table: Tensor,
    bias: Tensor | None,
    asked: _Asked,
) -> tuple[Tensor, Tensor, Tensor]:
    vocabulary = len(table)
    words, added = _padded(table, bias, vectors.dtype)  # v d, v
    learning = any(ctx.needs_input_grad)
    of_vectors = torch.empty_like(vectors) if learning else None
    of_table = torch.zeros_like(words, dtype=table.dtype) if learning else None
    of_bias = (
        words.new_zeros(len(words), dtype=table.dtype) if learning and bias is not None else None
    )
    loss = vectors.new_zeros((), dtype=torch.float32)
    hits = torch.zeros_like(loss)
    picked = [asked.targets[:0]]
    for place in range(0, len(vectors), asked.rows):
        here = slice(place, place + asked.rows)
        draws = None if asked.draws is None else asked.draws[here]
        scores = F.linear(vectors[here], words, added)  # r v
        part, right, slope, picks = _judged(scores, asked.targets[here], draws)
        loss, hits = loss + part, hits + right
        picked.append(picks)
        if of_vectors is not None and of_table is not None:
            of_vectors[here] = slope @ words
            of_table += slope.T @ vectors[here]
            if of_bias is not None:
                of_bias += slope.sum(0, dtype=of_bias.dtype)
    parts = (None if part is None else part[:vocabulary] for part in (of_table, of_bias))
    ctx.save_for_backward(of_vectors, *parts)
    drawn = torch.cat(picked)
    ctx.mark_non_differentiable(hits, drawn)
    return loss, hits, drawn


def _padded(table: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Table and bias, with words that never score where a GPU likes their number rounder."""
    words, added = table.to(dtype), None if bias is None else bias.to(dtype)
    short = -len(table) % _ROUND
    if table.is_cuda and short:
        words = F.pad(words, (0, 0, 0, short))
        added = words.new_zeros(len(table)) if added is None else added
        added = F.pad(added, (0, short), value=-torch.inf)
    return words, added


def _judged(
    scores: Tensor, targets: Tensor, draws: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`_judge`, as fast as it goes."""
    if draws is None and kernels.is_supported(scores):
        losses, hits, slope = torch.ops.cloze.cross_entropy(scores, targets)
        return losses.sum(), hits.sum(), slope, targets[:0]
    return (_compiled() if scores.is_cuda else _judge)(scores, targets, draws)


def _judge(
    scores: Tensor, targets: Tensor, draws: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, hits, d loss / d scores and drawn words of some places; no words without draws."""
    exact = scores.float()
    asked = targets != IGNORE_INDEX
    wanted = targets.clamp(min=0)[:, None]
    log_probs = exact.log_softmax(-1)
    loss = -(log_probs.gather(1, wanted).squeeze(1) * asked).sum()
    hits = ((scores.argmax(-1) == targets) & asked).sum().float()
    ids = torch.arange(scores.shape[-1], device=scores.device)
    probs = log_probs.exp()
    slope = (probs - (ids == wanted).float()) * asked[:, None]
    picks = targets[:0]
    if draws is not None:
        passed = probs.cumsum(-1) <= draws[:, None]
        picks = passed.sum(-1).clamp(max=len(ids) - 1)  # rounding may leave the sum short of 1
    return loss, hits, slope.to(scores.dtype), picks


@cache
def _compiled() -> Judge:
    """The same in few kernels; the compiler is slow to import, so a GPU must ask for it first."""
    return torch.compile(_judge, dynamic=False)
