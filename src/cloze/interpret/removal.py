"""The score of an output without some of the tokens, and how faithful an order of the tokens is.

b rows, t tokens of all sides, p points of a curve, r random orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cloze.config import in_range
from cloze.interpret.embeddings import Change, evaluate_changed, replace_vectors
from cloze.interpret.examples import BATCH_TOKENS, Example, ExampleBatch, iterate_batches
from cloze.interpret.scores import Batch, HeadScore, Score, select_rows
from cloze.progress import ProgressCallback

FRACTIONS = tuple(number / 10 for number in range(11))  # of the tokens that are removed
RANDOM_ORDERS = 10
_INTERVAL = (0.025, 0.975)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """How tokens are removed: another embedding takes their place, or they are dropped."""

    baseline: Tensor | None = None  # d; None: zeros
    drop: bool = False

    def list_removable(self, example: Example) -> list[int]:
        """The tokens that can be removed."""
        fixed = example.read_token if self.drop else None
        return [n for n, one in enumerate(example.removable) if one and n != fixed]


def evaluate_without(
    module: nn.Module,
    examples: ExampleBatch,
    rows: Sequence[int],
    keep: Sequence[Tensor],
    removal: Removal,
) -> tuple[Tensor, Tensor]:
    """Score and log-probability of rows of a batch without some of their tokens.

    `keep` says for each of the rows which of its tokens (t) are kept. A row may occur several
    times.
    """
    longest = max(len(example) for example in examples.examples)
    at_once = max(1, BATCH_TOKENS // longest)
    scores, logs = [torch.zeros(0)], [torch.zeros(0)]
    for first in range(0, len(rows), at_once):
        some = rows[first : first + at_once]
        sides = examples.split_sides(keep[first : first + at_once], some)
        index = torch.tensor(some, device=examples.batch.ids.device)
        batch, score = examples.batch.select(index), select_rows(examples.score, index)
        if removal.drop:
            found = evaluate_changed(module, *drop_tokens(batch, score, sides))
        else:
            found = evaluate_changed(module, batch, score, _make_change(sides, removal))
        scores.append(found[0].cpu())
        logs.append(found[1].cpu())
    return torch.cat(scores), torch.cat(logs)


def _make_change(sides: Sequence[Tensor], removal: Removal) -> Change:
    return lambda side, vectors: replace_vectors(vectors, ~sides[side], removal.baseline)


def drop_tokens(batch: Batch, score: Score, keep: Sequence[Tensor]) -> tuple[Batch, Score]:
    """The batch with the kept tokens of each side only (b t), and the score with its position."""
    *source, target = keep
    order, mask = _compress(target)
    values: dict[str, Any] = {"ids": _reorder(batch.ids, order), "mask": mask}
    if batch.type_ids is not None:
        values["type_ids"] = _reorder(batch.type_ids, order)
    if source:
        assert batch.source_ids is not None
        order, mask = _compress(source[0])
        values |= {"source_ids": _reorder(batch.source_ids, order), "source_mask": mask}
    position = torch.as_tensor(score.position, device=target.device).expand(len(batch))
    # the place of the token among those that are kept, or of the last one before it
    moved = (target.cumsum(1) - 1).clamp(min=0).gather(1, position[:, None])[:, 0]
    return replace(batch, **values), replace(score, position=moved)  # type: ignore[type-var]


def _compress(keep: Tensor) -> tuple[Tensor, Tensor]:
    """The indices of the kept tokens of each row, and which of them are no padding: b t."""
    counts = keep.sum(1, keepdim=True)
    longest = int(counts.max())
    order = (~keep).int().argsort(dim=1, stable=True)[:, :longest]
    return order, torch.arange(longest, device=keep.device) < counts


def _reorder(ids: Tensor, order: Tensor) -> Tensor:
    return ids[torch.arange(len(ids), device=ids.device)[:, None], order]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The probability of the output, by the fraction of the tokens that are removed or inserted."""

    values: tuple[float, ...]

    @property
    def area(self) -> float:
        """The area under the curve, from fraction 0 to 1: the mean probability."""
        return float(np.trapezoid(self.values, FRACTIONS))


@dataclass(frozen=True, kw_only=True)
class Faithfulness:
    """What removing the tokens in the order of their saliency does to an output.

    If the saliency is faithful, removing the most salient tokens first lowers the probability
    faster than a random order does, and inserting the most salient tokens first raises it faster.
    Inserting tokens in a random order is removing them in the reversed order.
    """

    deletion: Curve  # the most salient tokens are removed first
    insertion: Curve  # the most salient tokens are inserted first
    random: Curve  # tokens are removed in a random order: the mean
    low: Curve  # 95% of the random orders are
    high: Curve  # between these
    seeds: tuple[int, ...]

    @property
    def gain(self) -> float:
        """Area of insertion minus that of deletion; about 0 for a random order."""
        return self.insertion.area - self.deletion.area


def compute_faithfulness(  # noqa: PLR0913 (options by keyword)
    module: nn.Module,
    examples: Sequence[Example],
    saliency: Sequence[Tensor],
    removal: Removal,
    *,
    random_orders: int = RANDOM_ORDERS,
    seed: int = 0,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Faithfulness]:
    """Deletion and insertion curves of texts for the saliency of their tokens (t each).

    DeYoung et al. 2020 (sufficiency and comprehensiveness); Petsiuk et al. 2018 (deletion and
    insertion). The random orders of seeds `seed`, `seed + 1`, … are a baseline.
    """
    in_range("random_orders", random_orders, 1, 10_000)
    seeds = tuple(range(seed, seed + random_orders))
    found: dict[int, Faithfulness] = {}
    for numbers, batch in iterate_batches(module, examples, batch_tokens):
        rows, keep = [], []
        for row, number in enumerate(numbers):
            for order in _make_orders(examples[number], saliency[number], removal, seeds):
                for fraction in FRACTIONS:
                    kept = torch.ones(len(examples[number]), dtype=torch.bool)
                    kept[order[: round(fraction * len(order))]] = False
                    keep.append(kept)
                    rows.append(row)
        _, logs = evaluate_without(module, batch, rows, keep, removal)
        for number, values in zip(numbers, logs.split(len(logs) // len(numbers)), strict=True):
            curves = values.double().unflatten(0, (-1, len(FRACTIONS)))  # (2 + r) p
            found[number] = _make_faithfulness(examples[number], curves, seeds)
        if progress:
            progress("curves", len(found), len(examples))
    return [found[number] for number in range(len(examples))]


def _make_orders(
    example: Example, saliency: Tensor, removal: Removal, seeds: Sequence[int]
) -> list[list[int]]:
    """The removable tokens, the most salient first, the least salient first, and at random."""
    tokens = removal.list_removable(example)
    values = saliency.tolist()
    most = sorted(tokens, key=lambda token: -values[token])
    orders = [np.random.default_rng(seed).permutation(tokens).tolist() for seed in seeds]
    return [most, most[::-1], *orders]


def _make_faithfulness(example: Example, curves: Tensor, seeds: tuple[int, ...]) -> Faithfulness:
    is_number = isinstance(example.score, HeadScore) and example.score.activation == "none"
    values = curves if is_number else curves.exp()
    drawn = values[2:]
    low, high = drawn.quantile(torch.tensor(_INTERVAL, dtype=drawn.dtype), dim=0)
    deletion, insertion, mean, low_curve, high_curve = (
        Curve(values=tuple(one.tolist()))
        for one in (values[0], values[1].flip(0), drawn.mean(0), low, high)
    )
    return Faithfulness(
        deletion=deletion,
        insertion=insertion,
        random=mean,
        low=low_curve,
        high=high_curve,
        seeds=seeds,
    )
