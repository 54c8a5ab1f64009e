"""BERT's two pre-training tasks: masked language modelling and next sentence prediction.

Devlin et al. 2018, §3.1. n tokens of the packed row, b sequences, m masked positions, d width,
v vocabulary.
"""

from dataclasses import replace

import torch
from torch import Tensor

from cloze.data.batch import PackedBatch
from cloze.data.device_corpus import CorpusSliceBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed, Varlen
from cloze.objectives.core import Objective, Terms, copy_to_device, count_correct, cross_entropy
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy
from cloze.objectives.masking import Masking, mask_row


def pretraining_objective(
    model: Encoder,
    batch: PackedBatch,
    rng: torch.Generator | None = None,  # noqa: ARG001 (masks were drawn with the batch)
) -> Terms:
    """Loss and correct predictions of the masked tokens, and of the pairs if there is a head.

    The labels may come from next sentence prediction or from sentence order prediction (Lan et al.
    2019): only the pairs differ.
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
    if "nsp" in model.task_heads:  # even if no pair has a label: then the sum is zero
        labels = copy_to_device(batch.labels, device)
        first = copy_to_device(batch.starts[:-1], device)  # indices of [CLS]
        terms |= compute_pair_terms(model, hidden[first], labels)
    return terms


def make_device_objective(masking: Masking, device: torch.device) -> Objective[CorpusSliceBatch]:
    """The same for batches that are collated and masked on the device, all of one shape."""
    replacement_ids = torch.from_numpy(masking.replacement_ids).to(device)
    mask_only = replace(masking, split=(1.0, 0.0, 0.0))

    def objective(
        model: Encoder, batch: CorpusSliceBatch, rng: torch.Generator | None = None
    ) -> Terms:
        row, how = batch.gather_tokens(), masking
        if batch.seed is not None:
            rng, how = torch.Generator(device).manual_seed(batch.seed), mask_only
        masked = mask_row(
            row,
            how,
            replacement_ids,
            max_masked=batch.max_masked,
            num_masked=batch.num_masked,
            rng=rng,
        )
        layout = Varlen(row.cu_seqlens, row.positions, batch.max_seqlen)
        hidden = model(masked.ids, layout, row.token_type_ids)  # n d
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
