"""Saliency: how much each input token contributes to the score of an output.

b rows, t tokens, d width of the embeddings, k steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from cloze.config import in_range, one_of
from cloze.interpret.embeddings import Change, compute_gradients, evaluate_changed, replace_vectors
from cloze.interpret.examples import BATCH_TOKENS, Example, ExampleBatch, iterate_batches
from cloze.interpret.removal import Removal, evaluate_without
from cloze.interpret.scores import HeadScore, select_rows
from cloze.progress import ProgressCallback

Method = Literal["gradient", "integrated", "leave-one-out"]
METHODS: tuple[Method, ...] = ("gradient", "integrated", "leave-one-out")
STEPS = 50  # of integrated gradients


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribution:
    """The contributions of the tokens of a text to one output; the source of a translator first."""

    score: float  # the logit
    probability: float
    # t: the sum over the embedding of gradient · input, or the change of the score by removal
    signed: Tensor
    saliency: Tensor  # t: the L2 norm instead of the sum; not negative, all together 1
    baseline_score: float | None = None  # the logit for the baseline, of integrated gradients
    delta: float | None = None  # the sum of `signed` minus the difference of both logits


@torch.inference_mode(mode=False)  # whose tensors have no gradients
def compute_saliency(  # noqa: PLR0913 (options by keyword)
    module: nn.Module,
    examples: Sequence[Example],
    method: Method = "gradient",
    *,
    removal: Removal | None = None,
    steps: int = STEPS,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Attribution]:
    """The contributions of the tokens of many texts, in batches of similar lengths.

    gradient: gradient · input of each token (Li et al. 2016).
    integrated: (x − x′) · ∫ ∂f(x′ + α(x − x′))/∂x dα by Gauss–Legendre quadrature with `steps`
    points (Sundararajan et al. 2017, eq. 1); in x′ every removable token has the baseline's
    embedding.
    leave-one-out: f(x) minus the score without the token.
    """
    one_of("method", method, METHODS)
    in_range("steps", steps, 1, 10_000)
    found: dict[int, Attribution] = {}
    for numbers, batch in iterate_batches(module, examples, batch_tokens):
        if method == "gradient":
            rows = _multiply_gradients(module, batch)
        elif method == "integrated":
            rows = _integrate_gradients(module, batch, removal or Removal(), steps)
        else:
            rows = _leave_one_out(module, batch, removal or Removal())
        found.update(zip(numbers, rows, strict=True))
        if progress:
            progress("texts", len(found), len(examples))
    return [found[number] for number in range(len(examples))]


def _multiply_gradients(module: nn.Module, examples: ExampleBatch) -> list[Attribution]:
    scores, logs, vectors, gradients = compute_gradients(module, examples.batch, examples.score)
    products = [
        x.to(dtype) * gradient.to(dtype)
        for x, gradient in zip(vectors, gradients, strict=True)
        for dtype in [_sum_dtype(x)]
    ]
    return _make_attributions(examples, scores, logs, products)


def _integrate_gradients(
    module: nn.Module, examples: ExampleBatch, removal: Removal, steps: int
) -> list[Attribution]:
    batch, score = examples.batch, examples.score
    flags = [torch.tensor(one.removable, dtype=torch.bool) for one in examples.examples]
    masks = examples.split_sides(flags)
    ends: list[tuple[Tensor, Tensor]] = []  # of each side: baseline and input, b t d

    def record(side: int, vectors: Tensor) -> Tensor:
        ends.append((replace_vectors(vectors, masks[side], removal.baseline), vectors))
        return vectors

    scores, logs = evaluate_changed(module, batch, score, record)
    before, _ = evaluate_changed(module, batch, score, lambda side, _: ends[side][0])
    points, weights = np.polynomial.legendre.leggauss(steps)
    totals = [torch.zeros_like(x, dtype=_sum_dtype(x)) for _, x in ends]
    size = sum(x.shape[0] * x.shape[1] for _, x in ends)
    at_once = max(1, BATCH_TOKENS // size)  # steps, if the batch is small
    for first in range(0, steps, at_once):
        part = slice(first, first + at_once)
        alphas = torch.tensor(0.5 + 0.5 * points[part]).to(ends[0][0])
        shares = torch.tensor(0.5 * weights[part]).to(totals[0])
        rows = torch.arange(len(batch), device=batch.ids.device).repeat(len(alphas))  # (k b)
        mixed = [
            (low + alphas[:, None, None, None] * (high - low)).flatten(0, 1)  # (k b) t d
            for low, high in ends
        ]
        _, _, _, gradients = compute_gradients(
            module, batch.select(rows), select_rows(score, rows), _make_reader(mixed)
        )
        for total, gradient in zip(totals, gradients, strict=True):
            by_step = gradient.unflatten(0, (len(alphas), -1)).to(total)
            total += torch.einsum("k,kbtd->btd", shares, by_step)
    products = [(high - low) * total for (low, high), total in zip(ends, totals, strict=True)]
    return _make_attributions(examples, scores, logs, products, before)


def _make_reader(vectors: Sequence[Tensor]) -> Change:
    return lambda side, _: vectors[side]


def _leave_one_out(
    module: nn.Module, examples: ExampleBatch, removal: Removal
) -> list[Attribution]:
    whole, logs = evaluate_changed(module, examples.batch, examples.score)
    tokens = [
        (row, token)
        for row, example in enumerate(examples.examples)
        for token in removal.list_removable(example)
    ]
    keep = [torch.arange(len(examples.examples[row])) != token for row, token in tokens]
    rows = [row for row, _ in tokens]
    without, _ = evaluate_without(module, examples, rows, keep, removal)
    values = [torch.zeros(len(one), dtype=torch.float64) for one in examples.examples]
    lost = whole.cpu()[rows].double() - without.double()
    for (row, token), less in zip(tokens, lost.tolist(), strict=True):
        values[row][token] = less
    return [
        _make_attribution(example, float(whole[row]), float(logs[row]), value, value.abs())
        for row, (example, value) in enumerate(zip(examples.examples, values, strict=True))
    ]


def _sum_dtype(vectors: Tensor) -> torch.dtype:
    """At least float32, also for a model in half precision."""
    return torch.promote_types(vectors.dtype, torch.float32)


def _make_attributions(
    examples: ExampleBatch,
    scores: Tensor,
    logs: Tensor,
    products: Sequence[Tensor],
    before: Tensor | None = None,
) -> list[Attribution]:
    """From gradient · input of each side, b t d."""
    signed = [one.sum(-1).cpu() for one in products]
    norms = [one.norm(dim=-1).cpu() for one in products]
    first = None if before is None else before.double().tolist()
    rows = zip(examples.examples, scores.double().tolist(), logs.double().tolist(), strict=True)
    return [
        _make_attribution(
            example,
            score,
            log,
            _join_sides(example, signed, row),
            _join_sides(example, norms, row),
            None if first is None else first[row],
        )
        for row, (example, score, log) in enumerate(rows)
    ]


def _join_sides(example: Example, sides: Sequence[Tensor], row: int) -> Tensor:
    """The values of a row without padding: t."""
    return torch.cat([side[row, :size] for side, size in zip(sides, example.sizes, strict=True)])


def _make_attribution(
    example: Example,
    score: float,
    log_probability: float,
    signed: Tensor,
    norms: Tensor,
    before: float | None = None,
) -> Attribution:
    is_number = isinstance(example.score, HeadScore) and example.score.activation == "none"
    total = float(norms.sum())
    return Attribution(
        score=score,
        probability=log_probability if is_number else float(np.exp(log_probability)),
        signed=signed,
        saliency=norms / total if total else norms,
        baseline_score=before,
        delta=None if before is None else float(signed.double().sum()) - (score - before),
    )
