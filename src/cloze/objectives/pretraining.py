"""BERT's two tasks: the masked words, and whether one text follows another.

Devlin et al. 2018, §3.1.

n tokens in the packed row, b sequences, m masked positions, d width, v vocabulary.
"""

import torch

from cloze.data.batch import PackedBatch
from cloze.nn.encoder import Encoder
from cloze.nn.packed import Packed
from cloze.objectives.core import Terms, correct, cross_entropy, on_device


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
    words = model.logits("mlm", hidden[on_device(batch.positions, device)])  # m v
    terms = {"mlm": cross_entropy(words, targets), "mlm.accuracy": correct(words, targets)}
    if "nsp" in model.heads:  # also where no pair has a label: then its sum is zero
        labels = on_device(batch.labels, device)
        first = on_device(batch.starts[:-1], device)  # where each [CLS] stands
        order = model.logits("nsp", hidden[first])  # b 2
        terms |= {"nsp": cross_entropy(order, labels), "nsp.accuracy": correct(order, labels)}
    return terms
