"""The cross-entropy of a large vocabulary in little memory.  m vectors, d width, v vocabulary.

The scores of all words for all masked places are the largest thing in a small model's step: with
30,000 words and 20,000 places 1.2 GB in bfloat16, and as much again for their gradient. Here they
are made for a few thousand places at a time, and turned at once into the gradients of the vectors
and of the table, so that no more than that is ever there (Hsu et al. 2024, Liger kernel).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import NO_LABEL

ROWS = 8192  # places at a time
Judge: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def lean_cross_entropy(
    vectors: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, *, rows: int = ROWS
) -> tuple[Tensor, Tensor]:
    """−Σ log softmax(vectors·tableᵀ + bias)[target], and how many targets score highest.

    Products are computed in the vectors' precision, the softmax in float32. Targets of NO_LABEL are
    left out.
    """
    found: tuple[Tensor, Tensor] = _LeanCrossEntropy.apply(vectors, table, bias, targets, rows)  # type: ignore[no-untyped-call]
    return found


class _LeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        vectors: Tensor,
        table: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(vectors.device.type, enabled=False):
            return _forward(ctx, vectors, table, bias, targets, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        of_vectors, of_table, of_bias = ctx.saved_tensors
        return (
            of_vectors * grad.to(of_vectors.dtype),
            of_table * grad,
            None if of_bias is None else of_bias * grad,
            None,
            None,
        )


def _forward(
    ctx: Any,  # noqa: ANN401
    vectors: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    rows: int,
) -> tuple[Tensor, Tensor]:
    words = table.to(vectors.dtype)  # v d
    added = None if bias is None else bias.to(vectors.dtype)
    learning = any(ctx.needs_input_grad)
    of_vectors = torch.empty_like(vectors) if learning else None
    of_table = torch.zeros_like(table) if learning else None
    of_bias = torch.zeros_like(bias) if learning and bias is not None else None
    loss = vectors.new_zeros((), dtype=torch.float32)
    hits = torch.zeros_like(loss)
    for some, wanted, place in zip(
        vectors.split(rows), targets.split(rows), range(0, len(vectors), rows), strict=True
    ):
        scores = F.linear(some, words, added)  # r v
        part, right, slope = (_compiled() if scores.is_cuda else _judge)(scores, wanted)
        loss, hits = loss + part, hits + right
        if of_vectors is not None and of_table is not None:
            of_vectors[place : place + rows] = slope @ words
            of_table += slope.T @ some
            if of_bias is not None:
                of_bias += slope.sum(0, dtype=of_bias.dtype)
    ctx.save_for_backward(of_vectors, of_table, of_bias)
    ctx.mark_non_differentiable(hits)
    return loss, hits


def _judge(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, hits and d loss / d scores of some places."""
    exact = scores.float()
    asked = targets != NO_LABEL
    wanted = targets.clamp(min=0)[:, None]
    log_probs = exact.log_softmax(-1)
    loss = -(log_probs.gather(1, wanted).squeeze(1) * asked).sum()
    hits = ((scores.argmax(-1) == targets) & asked).sum().float()
    ids = torch.arange(scores.shape[-1], device=scores.device)
    slope = (log_probs.exp() - (ids == wanted).float()) * asked[:, None]
    return loss, hits, slope.to(scores.dtype)


@cache
def _compiled() -> Judge:
    """The same in few kernels; the compiler is slow to import, so a GPU must ask for it first."""
    return torch.compile(_judge, dynamic=False)
