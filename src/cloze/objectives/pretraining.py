"""BERT's two tasks: the masked words, and whether one text follows another.

Devlin et al. 2018, §3.1.

n tokens in the packed row, b sequences, m masked positions, d width, v vocabulary.
"""

from dataclasses import replace

import torch
from torch import Tensor

from cloze.data.batch import PackedBatch
from cloze.data.device_corpus import CorpusSliceBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed, Varlen
from cloze.objectives.core import Objective, Terms, correct, cross_entropy, on_device
from cloze.objectives.lean import lean_cross_entropy
from cloze.objectives.masking import Masking, mask_row


def pretraining(model: Encoder, batch: PackedBatch, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
    """Loss and hits of the masked words, and of the pairs where the model has a head for them.

    The labels may come from next sentence prediction or from sentence order prediction (Lan et al.
    2019): the pairs differ, what is learned from them does not. What is masked was drawn with the
    batch, so `rng` is not asked.
    """
    device = model.embeddings.word.weight.device
    hidden = model(
        on_device(batch.input_ids, device),
        Packed.of(batch.lengths, device),
        on_device(batch.token_type_ids, device),
    )  # n d
    targets = on_device(batch.targets, device)
    words = model.logits("mlm", hidden[on_device(batch.masked_positions, device)])  # m v
    terms = {"mlm": cross_entropy(words, targets), "mlm.accuracy": correct(words, targets)}
    if "nsp" in model.task_heads:  # also where no pair has a label: then its sum is zero
        labels = on_device(batch.labels, device)
        first = on_device(batch.starts[:-1], device)  # where each [CLS] stands
        terms |= pair_terms(model, hidden[first], labels)
    return terms


def resident_pretraining(masking: Masking, device: torch.device) -> Objective[CorpusSliceBatch]:
    """The same for batches that are made on the device, masks and all, every one of one shape."""
    vocab = torch.from_numpy(masking.vocab).to(device)
    hiding = replace(masking, split=(1.0, 0.0, 0.0))

    def objective(
        model: Encoder, batch: CorpusSliceBatch, rng: torch.Generator | None = None
    ) -> Terms:
        row, how = batch.gather_tokens(), masking
        if batch.seed is not None:
            rng, how = torch.Generator(device).manual_seed(batch.seed), hiding
        hidden_row = mask_row(
            row, how, vocab, places=batch.max_masked, asked=batch.num_masked, rng=rng
        )
        bounds = Varlen(row.cu_seqlens, row.positions, batch.max_seqlen)
        hidden = model(hidden_row.ids, bounds, row.token_type_ids)  # n d
        vectors = hidden.index_select(0, hidden_row.places)  # m d
        loss, hits = lean_cross_entropy(*model.lm_head_operands(vectors), hidden_row.targets)
        terms = {"mlm": loss, "mlm.accuracy": hits}
        if "nsp" in model.task_heads:
            terms |= pair_terms(model, hidden.index_select(0, row.sample_starts), row.labels)
        return terms

    return objective


def pair_terms(model: Encoder, firsts: Tensor, labels: Tensor) -> Terms:
    """Loss and hits of the pairs, from their [CLS] vectors."""
    order = model.logits("nsp", firsts)  # b 2
    return {"nsp": cross_entropy(order, labels), "nsp.accuracy": correct(order, labels)}
