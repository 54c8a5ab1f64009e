"""Replaced token detection: which tokens of a text are not the original ones?

A small generator fills masked positions, and the model classifies every token as original or
replaced (Clark et al. 2020, §2):

    x̂ = x with x̂ᵢ ~ softmax(generator(x masked))ᵢ at the masked positions i
    L = −Σ log p(xᵢ)  +  λ·Σ BCE(model(x̂)ₜ, [x̂ₜ ≠ xₜ])      λ = 50, each as a mean over its targets

So the model learns from every token, where a masked LM learns from the masked ones only. It does
not learn to predict them; the model may therefore be trained as a masked LM in other batches, or
predict the original tokens at the positions that the generator has filled.

n tokens of the row, m masked positions, d width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.data.device_corpus import CorpusSliceBatch, TokenRow
from cloze.objectives.core import Objective, Terms, scale_gradient, upcast_to_float32
from cloze.objectives.detector import Detector
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy, fused_linear_sample
from cloze.objectives.masking import Masking, mask_row
from cloze.objectives.pretraining import compute_pair_terms, make_device_objective, make_layout


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplacedTokenBatch(CorpusSliceBatch):
    """A batch for the masked LM, for detection, or for both one after another.

    All tokens of the text are classified, including [UNK], which is never replaced: so their number
    follows from the lengths, before the device has seen the batch.
    """

    has_mlm: bool
    has_detection: bool

    @property
    def counts(self) -> Mapping[str, int]:
        tokens = sum(int((part[:, 1] - part[:, 0]).sum()) for part in (self.a, self.b))
        generated = self.num_masked * self.has_detection
        return {
            "mlm": self.num_masked * self.has_mlm,
            "nsp": super().counts["nsp"],
            "generator": generated,
            "detection": tokens * self.has_detection,
            "correction": generated,
        }


def is_detection_batch(number: int, fraction: Fraction) -> bool:
    """Whether a batch is among the fraction that trains detection; these are spread evenly."""
    return int((number + 1) * fraction) > int(number * fraction)


def make_detection_objective(
    masking: Masking, device: torch.device, *, weight: float, correction: float
) -> Objective[ReplacedTokenBatch]:
    """Detection with `weight` (λ), the loss of the generator, and the masked LM of a batch.

    With a `correction` above 0, the model's LM head also predicts the original tokens at the
    positions that the generator has filled, with this weight: "Replace MLM" of Clark et al. 2020,
    §3.4; the corrective LM of Meng et al. 2021 (COCO-LM), without its copy mechanism and at the
    masked positions only.

    Every masked token of the generator is replaced by [MASK], as in the paper; `masking.split` is
    used by the masked LM only.
    """
    masked_lm = make_device_objective(masking, device)
    replacement_ids = torch.from_numpy(masking.replacement_ids).to(device)
    mask_only = replace(masking, split=(1.0, 0.0, 0.0))

    def detect(model: Detector, batch: ReplacedTokenBatch, rng: torch.Generator | None) -> Terms:
        row = batch.gather_tokens()
        if batch.seed is not None:
            rng = torch.Generator(device).manual_seed(batch.seed)
        masked = mask_row(
            row,
            mask_only,
            replacement_ids,
            max_masked=batch.max_masked,
            num_masked=batch.num_masked,
            rng=rng,
        )
        layout = make_layout(batch, row)
        hidden = model.generator(masked.ids, layout, row.token_type_ids)  # n g
        operands = model.generator.lm_head_operands(hidden.index_select(0, masked.positions))
        draws = torch.rand(len(masked.positions), generator=rng, device=device)
        loss, hits, samples = fused_linear_sample(*operands, masked.targets, draws)
        terms = {"generator": loss, "generator.accuracy": hits}
        original = row.ids.index_select(0, masked.positions)
        filled = torch.where(masked.targets == IGNORE_INDEX, original, samples)
        ids = row.ids.scatter(0, masked.positions, filled)
        hidden = model.model(ids, layout, row.token_type_ids)  # n d
        logits = model.discriminator_logits(hidden)
        terms |= compute_detection_terms(logits, ids != row.ids, row, weight)
        if correction:
            operands = model.model.lm_head_operands(hidden.index_select(0, masked.positions))
            loss, hits = fused_linear_cross_entropy(*operands, masked.targets)
            terms |= {"correction": scale_gradient(loss, correction), "correction.accuracy": hits}
        if "nsp" in model.model.task_heads:
            first = hidden.index_select(0, row.sample_starts)
            terms |= compute_pair_terms(model.model, first, row.labels)
        return terms

    def objective(
        model: Detector, batch: ReplacedTokenBatch, rng: torch.Generator | None = None
    ) -> Terms:
        terms = detect(model, batch, rng) if batch.has_detection else {}
        # in a batch with both, the pairs are predicted from the row without replaced tokens
        return {**terms, **(masked_lm(model.model, batch, rng) if batch.has_mlm else {})}

    return objective


def compute_detection_terms(
    logits: Tensor, is_replaced: Tensor, row: TokenRow, weight: float
) -> dict[str, Tensor]:
    """Loss and accuracy over the tokens of the text, and the accuracy of "all are original"."""
    loss = F.binary_cross_entropy_with_logits(
        upcast_to_float32(logits), is_replaced.float(), row.is_text.float(), reduction="sum"
    )
    return {
        "detection": scale_gradient(loss, weight),
        "detection.accuracy": (((logits > 0) == is_replaced) & row.is_text).sum().float(),
        "detection.original": (~is_replaced & row.is_text).sum().float(),
    }
