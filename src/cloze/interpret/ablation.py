"""Ablation: how an output changes if a head, a sublayer or a block is removed.

Michel et al. 2019 (heads of BERT and of a Transformer). b rows, t tokens, d width.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from cloze.interpret.interventions import (
    BATCH_TOKENS,
    Edit,
    Metric,
    Part,
    measure_runs,
    record_parts,
)
from cloze.interpret.scores import Batch, Score
from cloze.nn.utils import eval_mode
from cloze.progress import ProgressCallback

Method: TypeAlias = Literal["zero", "mean"]
METHODS: tuple[Method, ...] = ("zero", "mean")


def compute_ablations(  # noqa: PLR0913 (what is computed, and how)
    module: nn.Module,
    score: Score,
    batch: Batch,
    parts: Sequence[Part],
    *,
    means: Mapping[Part, Tensor] | None = None,
    metric: Metric = "log_probability",
    batch_tokens: int = BATCH_TOKENS,
    progress: ProgressCallback | None = None,
) -> tuple[float, Tensor]:
    """The metric of a text (a batch of one row), and its change without each of the parts.

    A part is replaced with zeros or, if given, with its mean (d). Without a block its input is its
    output, plus the mean of what the block adds.
    """
    runs: list[list[Edit]] = [[], *([_remove(part, batch, means)] for part in parts)]
    found = measure_runs(
        module, score, batch, runs, metric=metric, batch_tokens=batch_tokens, progress=progress
    )
    return float(found[0]), (found[1:] - found[0]).cpu()


def _remove(part: Part, batch: Batch, means: Mapping[Part, Tensor] | None) -> Edit:
    value = torch.zeros((), device=batch.ids.device) if means is None else means[part]
    return Edit(part, value, adds_input=part.kind == "block")


@torch.inference_mode()
def compute_part_means(
    module: nn.Module, items: Iterable[tuple[Score, Batch]], parts: Sequence[Part]
) -> dict[Part, Tensor]:
    """The mean of each part over all real tokens of texts: d; of a block of what it adds."""
    sums: dict[Part, Tensor] = {}
    counts: dict[Part, Tensor] = {}
    with eval_mode(module), record_parts(module, parts, changes=True) as recorded:
        for score, batch in items:
            score(module, batch)
            for part, value in recorded.items():
                is_source = part.stack == "encoder" and batch.source_ids is not None
                mask = batch.source_mask if is_source else batch.mask
                weights = value.new_ones(value.shape[:2]) if mask is None else mask.to(value)  # b t
                total = torch.einsum("btd,bt->d", value, weights)
                sums[part] = sums.get(part, 0) + total
                counts[part] = counts.get(part, 0) + weights.sum()
    return {part: sums[part] / counts[part] for part in parts}
