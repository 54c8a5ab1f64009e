"""Objectives of pre-training: masked and causal language modelling, next sentence prediction.

n tokens of the packed row, b sequences, m masked positions, d width, v vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from cloze.data.batch import IGNORE_INDEX, PackedBatch
from cloze.data.device_corpus import CorpusSliceBatch, TokenRow
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed, Varlen
from cloze.objectives.core import Objective, Terms, copy_to_device, count_correct, cross_entropy
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy
from cloze.objectives.masking import MaskedRow, Masking, mask_row


def pretraining_objective(
    model: Encoder,
    batch: PackedBatch,
    rng: torch.Generator | None = None,  # noqa: ARG001 (masks were drawn with the batch)
) -> Terms:
    """Loss and correct predictions of the masked tokens, and of the pairs if there is a head.

    The two tasks of BERT (Devlin et al. 2018, §3.1). The pairs may be those of next sentence
    prediction or of sentence order prediction (Lan et al. 2019).
    """
    device = model.embeddings.word.weight.device
    hidden = model(
        copy_to_device(batch.input_ids, device),
        Packed.from_lengths(batch.lengths, device),
        copy_to_device(batch.token_type_ids, device),
    )  # n d
    targets = copy_to_device(batch.targets, device)
    logits = model.logits("mlm", hidden[copy_to_device(batch.masked_positions, device)])  # m v
    terms = {"mlm": cross_entropy(logits, targets), "mlm.accuracy": count_correct(logits, targets)}
    if "nsp" in model.task_heads:  # the sum is zero if no pair has a label
        labels = copy_to_device(batch.labels, device)
        first = copy_to_device(batch.starts[:-1], device)  # indices of [CLS]
        terms |= compute_pair_terms(model, hidden[first], labels)
    return terms


@dataclass(frozen=True)
class DeviceMasking:
    """Gathers the tokens of a batch on the device, and masks them there."""

    masking: Masking
    device: torch.device

    @cached_property
    def _replacement_ids(self) -> Tensor:
        return torch.from_numpy(self.masking.replacement_ids).to(self.device)

    def __call__(
        self, batch: CorpusSliceBatch, rng: torch.Generator | None
    ) -> tuple[TokenRow, MaskedRow]:
        """The tokens before and after masking."""
        row, masking = batch.gather_tokens(), self.masking
        if batch.seed is not None:  # for evaluation
            rng = torch.Generator(self.device).manual_seed(batch.seed)
            masking = replace(masking, split=(1.0, 0.0, 0.0))
        masked = mask_row(
            row,
            masking,
            self._replacement_ids,
            max_masked=batch.max_masked,
            num_masked=batch.num_masked,
            rng=rng,
        )
        return row, masked


def make_device_objective(masking: Masking, device: torch.device) -> Objective[CorpusSliceBatch]:
    """`pretraining_objective` for batches of fixed shapes that are assembled on the device."""
    mask = DeviceMasking(masking, device)

    def objective(
        model: Encoder, batch: CorpusSliceBatch, rng: torch.Generator | None = None
    ) -> Terms:
        row, masked = mask(batch, rng)
        hidden = model(masked.ids, make_layout(batch, row), row.token_type_ids)  # n d
        operands = model.lm_head_operands(hidden.index_select(0, masked.positions))  # m d
        loss, hits = fused_linear_cross_entropy(*operands, masked.targets)
        terms = {"mlm": loss, "mlm.accuracy": hits}
        if "nsp" in model.task_heads:
            first = hidden.index_select(0, row.sample_starts)
            terms |= compute_pair_terms(model, first, row.labels)
        return terms

    return objective


def compute_pair_terms(model: Encoder, first: Tensor, labels: Tensor) -> Terms:
    """Loss and correct predictions of the pairs, from their [CLS] vectors."""
    logits = model.logits("nsp", first)  # b 2
    return {"nsp": cross_entropy(logits, labels), "nsp.accuracy": count_correct(logits, labels)}


@dataclass(frozen=True, kw_only=True, eq=False)
class CausalLMBatch(CorpusSliceBatch):
    """A batch in which every token but the last of a sequence has a target."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"lm": int((self.lengths - 1).sum())}


def causal_lm_objective(
    model: Encoder,
    batch: CausalLMBatch,
    rng: torch.Generator | None = None,  # noqa: ARG001
) -> Terms:
    """−Σ log p(xₜ₊₁ | x₁ … xₜ): the next tokens, including the [SEP] that ends a text.

    The baseline of Devlin et al. 2018, §5.1 ("LTR"). The model must be causal; otherwise it would
    attend to the tokens that it predicts. A causal BERT predicts them with its masked-LM head, so
    that it has the weights of a masked LM.
    """
    row = batch.gather_tokens()
    layout = make_layout(batch, row, varlen=model.supports_varlen)
    hidden = model(row.ids, layout, row.token_type_ids)  # n d
    operands = model.lm_head_operands(hidden)
    loss, hits = fused_linear_cross_entropy(*operands, make_next_token_targets(row))
    return {"lm": loss, "lm.accuracy": hits}


def make_next_token_targets(row: TokenRow) -> Tensor:
    """The token after each position, n; IGNORE_INDEX at the end of a sequence and in padding."""
    continues = row.positions.roll(-1) > 0  # the next token is not the first of a sequence
    return torch.where(continues, row.ids.roll(-1), IGNORE_INDEX)


def make_layout(batch: CorpusSliceBatch, row: TokenRow, *, varlen: bool = True) -> Varlen | Packed:
    """The layout of a batch's row: on a GPU of one shape for every batch, else by the lengths."""
    device = batch.corpus.device
    if device.type == "cuda" and varlen:
        return Varlen(row.cu_seqlens, row.positions, batch.max_seqlen)
    whole, rest = divmod(batch.capacity - batch.size, batch.max_seqlen)
    padding = [batch.max_seqlen] * whole + [rest] * (rest > 0)  # sequences of their own
    return Packed.from_lengths([*batch.lengths, *padding], device)
