"""Replaced-token detection: which words of a text are not the writer's?  Clark et al. 2020, §2.

A small generator fills masked words, and the model says of every token whether it is the original:

    x̂ = x with x̂ᵢ ~ softmax(generator(x masked))ᵢ at the masked places i
    L = −Σ log p(xᵢ)  +  λ·Σ BCE(model(x̂)ₜ, [x̂ₜ ≠ xₜ])      λ = 50, each as a mean over its targets

So the model learns from every token, where a masked LM learns from the few it must guess. It does
not learn to guess them; beside it the model may therefore fill masks in other batches, or say what
stood at the places the generator has filled.

n tokens in the row, m masked places, d width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.data.device_corpus import CorpusSliceBatch, TokenRow
from cloze.nn.layout import Varlen
from cloze.objectives.core import Objective, Terms, exact, weighted
from cloze.objectives.detector import Detector
from cloze.objectives.lean import lean_cross_entropy, lean_samples
from cloze.objectives.masking import Masking, mask_row
from cloze.objectives.pretraining import pair_terms, resident_pretraining


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplacedBatch(CorpusSliceBatch):
    """A batch whose masked words the model fills, whose replaced words it finds, or both in turn.

    Told apart are all tokens of the text, [UNK] among them though it is never replaced: so their
    number is known from the lengths, before the device has seen the batch.
    """

    fills: bool
    detects: bool

    @property
    def counts(self) -> Mapping[str, int]:
        tokens = sum(int((part[:, 1] - part[:, 0]).sum()) for part in (self.a, self.b))
        guessed = self.num_masked * self.detects
        return {
            "mlm": self.num_masked * self.fills,
            "nsp": super().counts["nsp"],
            "generator": guessed,
            "detection": tokens * self.detects,
            "correction": guessed,
        }


def detects(number: int, share: Fraction) -> bool:
    """Whether the batch of a number is among the share that detects; these are spread evenly."""
    return int((number + 1) * share) > int(number * share)


def replaced_tokens(
    masking: Masking, device: torch.device, *, weight: float, correction: float
) -> Objective[ReplacedBatch]:
    """Detection, `weight` times as important as the generator's words (λ), and what a batch asks.

    With a `correction` above 0, the model's head also says which word stood where the generator put
    one: "Replace MLM" of Clark et al. 2020, §3.4; the corrective LM of Meng et al. 2021 (COCO-LM),
    without its copying and at the places drawn alone. It is so many times as important as a masked
    word.

    All that is masked for the generator is hidden behind [MASK], as in the paper; `masking.split`
    is of the words that the model fills.
    """
    fill = resident_pretraining(masking, device)
    vocab = torch.from_numpy(masking.vocab).to(device)
    hiding = replace(masking, split=(1.0, 0.0, 0.0))

    def detect(model: Detector, batch: ReplacedBatch, rng: torch.Generator | None) -> Terms:
        row = batch.gather_tokens()
        if batch.seed is not None:
            rng = torch.Generator(device).manual_seed(batch.seed)
        masked = mask_row(
            row, hiding, vocab, places=batch.max_masked, asked=batch.num_masked, rng=rng
        )
        bounds = Varlen(row.cu_seqlens, row.positions, batch.max_seqlen)
        vectors = model.generator(masked.ids, bounds, row.token_type_ids).index_select(
            0, masked.places
        )
        draws = torch.rand(len(masked.places), generator=rng, device=device)
        factors = model.generator.lm_head_operands(vectors)
        loss, hits, picks = lean_samples(*factors, masked.targets, draws)
        terms = {"generator": loss, "generator.accuracy": hits}
        told = row.ids.index_select(0, masked.places)
        filled = row.ids.scatter(
            0, masked.places, torch.where(masked.targets == IGNORE_INDEX, told, picks)
        )
        hidden = model.model(filled, bounds, row.token_type_ids)  # n d
        terms |= told_apart(model.suspicion(hidden), filled != row.ids, row, weight)
        if correction:
            factors = model.model.lm_head_operands(hidden.index_select(0, masked.places))
            loss, hits = lean_cross_entropy(*factors, masked.targets)
            terms |= {"correction": weighted(loss, correction), "correction.accuracy": hits}
        if "nsp" in model.model.task_heads:
            terms |= pair_terms(model.model, hidden.index_select(0, row.sample_starts), row.labels)
        return terms

    def objective(
        model: Detector, batch: ReplacedBatch, rng: torch.Generator | None = None
    ) -> Terms:
        found = detect(model, batch, rng) if batch.detects else {}
        # pairs of a batch that does both are told by the row without replaced words
        return {**found, **(fill(model.model, batch, rng) if batch.fills else {})}

    return objective


def told_apart(scores: Tensor, replaced: Tensor, row: TokenRow, weight: float) -> dict[str, Tensor]:
    """Loss and hits over the tokens of the text, and the hits of always saying "original"."""
    loss = F.binary_cross_entropy_with_logits(
        exact(scores), replaced.float(), row.is_text.float(), reduction="sum"
    )
    return {
        "detection": weighted(loss, weight),
        "detection.accuracy": (((scores > 0) == replaced) & row.is_text).sum().float(),
        "detection.original": (~replaced & row.is_text).sum().float(),
    }
