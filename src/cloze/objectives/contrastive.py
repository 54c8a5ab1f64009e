"""Contrastive losses: functions of the vectors of a whole batch of pairs.

They equal those of sentence-transformers number by number. Every loss here is the mean or the whole
of a batch, not a sum over its texts: `objectives/embedding.py` and `train/joint_gradients.py`
explain how a batch is still embedded in parts.

v vectors, d their size, g rows (an anchor, its positive and its negatives), c candidates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.pair_batch import MISSING, PairLayout
from cloze.objectives.core import copy_to_device, upcast_to_float32


class LossOutput(NamedTuple):
    """A loss, and how many anchors are most similar to their own positive, if it compares them."""

    loss: Tensor
    hits: Tensor | None = None


ContrastiveLoss: TypeAlias = Callable[[Tensor, PairLayout], LossOutput]


@dataclass(frozen=True)
class MultipleNegativesLoss:
    """−1/g Σᵢ log exp(s·cos(aᵢ, pᵢ)) / Σⱼ exp(s·cos(aᵢ, cⱼ)): the positive among all candidates.

    The candidates cⱼ are the positives and the negatives of all rows (Henderson et al. 2017, §4.4;
    with temperature 1/s this is InfoNCE, van den Oord et al. 2018, eq. 4). With `symmetric` it is
    the mean of this loss and of the one that finds the anchor of each positive among all anchors.

    Deviation from sentence-transformers, which recommends to avoid such batches: a candidate that
    is the same text as the anchor or its positive, or the positive of the same anchor in another
    row, is no negative and is left out.
    """

    scale: float | Tensor = 20.0  # a tensor: a learned one
    symmetric: bool = False

    def __call__(self, vectors: Tensor, layout: PairLayout) -> LossOutput:
        unit = F.normalize(upcast_to_float32(vectors), dim=-1)
        columns = copy_to_device(layout.columns, vectors.device)  # g k
        texts = copy_to_device(layout.texts, vectors.device)
        anchors, positives = unit[columns[:, 0]], unit[columns[:, 1]]  # g d
        others = columns[:, 2:].T.flatten()  # negatives, column by column
        candidates = torch.cat([columns[:, 1], others[others != MISSING]])  # c
        logits = self.scale * anchors @ unit[candidates].T  # g c
        hidden = _find_equal_candidates(texts, columns, candidates)
        logits = logits.masked_fill(hidden, -torch.inf)
        targets = torch.arange(len(logits), device=logits.device)
        loss = F.cross_entropy(logits, targets)
        hits = (logits.detach().argmax(1) == targets).sum().float()
        if not self.symmetric:
            return LossOutput(loss, hits)
        backward = self.scale * positives @ anchors.T  # g g
        backward = backward.masked_fill(hidden[:, : len(logits)].T, -torch.inf)
        return LossOutput((loss + F.cross_entropy(backward, targets)) / 2, hits)


def _find_equal_candidates(texts: Tensor, columns: Tensor, candidates: Tensor) -> Tensor:
    """Which candidates are no negatives of each row (g c), as they are equal to its texts."""
    anchor, positive, found = texts[columns[:, 0]], texts[columns[:, 1]], texts[candidates]
    hidden = (positive[:, None] == found) | (anchor[:, None] == found)
    count = len(anchor)
    hidden[:, :count] |= anchor[:, None] == anchor  # another positive of the same anchor
    hidden[:, :count].fill_diagonal_(False)
    return hidden


@dataclass(frozen=True)
class CoSENTLoss:
    """log(1 + Σ exp(s·(cosⱼ − cosᵢ))) over all pairs of rows where i has the higher score than j.

    Only the order of the scores counts (Su 2022; Huang et al. 2024, eq. 7).
    """

    scale: float = 20.0

    def __call__(self, vectors: Tensor, layout: PairLayout) -> LossOutput:
        cosines, scores = _pair_cosines(vectors, layout)
        scaled = self.scale * cosines
        is_lower = scores[:, None] < scores  # g g: row i should be below row j
        differences = (scaled[:, None] - scaled).masked_fill(~is_lower, -torch.inf)
        return LossOutput(torch.cat([differences.new_zeros(1), differences.flatten()]).logsumexp(0))


@dataclass(frozen=True)
class CosineLoss:
    """1/g Σᵢ (cos(aᵢ, pᵢ) − scoreᵢ)², for scores from −1 to 1.  Reimers & Gurevych 2019, §3."""

    def __call__(self, vectors: Tensor, layout: PairLayout) -> LossOutput:
        cosines, scores = _pair_cosines(vectors, layout)
        return LossOutput(F.mse_loss(cosines, scores.to(cosines)))


@dataclass(frozen=True)
class MatryoshkaLoss:
    """Σₘ wₘ·L(first m numbers of the vectors): so vectors can be shortened.

    Kusupati et al. 2022, eq. 1. The hits are those of the largest size.
    """

    loss: ContrastiveLoss
    sizes: Sequence[int]
    weights: Sequence[float]

    def __call__(self, vectors: Tensor, layout: PairLayout) -> LossOutput:
        outputs = [self.loss(vectors[:, :size], layout) for size in self.sizes]
        total = sum(
            (weight * one.loss for weight, one in zip(self.weights, outputs, strict=True)),
            start=vectors.new_zeros(()),
        )
        largest = max(range(len(outputs)), key=lambda n: self.sizes[n])
        return LossOutput(total, outputs[largest].hits)


def _pair_cosines(vectors: Tensor, layout: PairLayout) -> tuple[Tensor, Tensor]:
    """The cosine of each row's two texts (g), and its score (g)."""
    assert layout.scores is not None, "these rows have no scores"
    columns = copy_to_device(layout.columns, vectors.device)
    scores = copy_to_device(layout.scores, vectors.device)
    exact = upcast_to_float32(vectors)
    return F.cosine_similarity(exact[columns[:, 0]], exact[columns[:, 1]], dim=-1), scores
