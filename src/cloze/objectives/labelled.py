"""Objectives of fine-tuning: classes, numbers, tags, answer spans, multiple choice.

n tokens, b sequences, t length of the longest, m positions, c classes, d width, g groups,
k options.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.labelled.batch import TaskBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import AttentionLayout, Packed
from cloze.objectives.core import (
    DeviceBatch,
    Objective,
    Terms,
    copy_to_device,
    count_correct,
    upcast_to_float32,
)

TaskInput = TaskBatch | DeviceBatch


def make_classification_objective(
    head: str, *, weights: Tensor | None = None, smoothing: float = 0.0
) -> Objective[TaskBatch]:
    """−Σ w_y log softmax(logits)_y at every position: the class of a text, the tags of its words.

    With label smoothing ε the target is 1−ε for the true class plus ε/c for all (Szegedy et al.
    2016). The class `weights` are on the model's device.
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        logits, tensors = compute_head_logits(model, batch, head)  # m c
        targets = tensors["targets"]
        loss = F.cross_entropy(logits, targets, weights, label_smoothing=smoothing, reduction="sum")
        return _make_terms(batch, loss, count_correct(logits, targets))

    return objective


def make_multi_label_objective(
    head: str, *, weights: Tensor | None = None, smoothing: float = 0.0
) -> Objective[TaskBatch]:
    """Binary cross-entropy: −1/c Σ_l y_l log σ(z_l) + (1 − y_l) log σ(−z_l), summed over examples.

    The mean over the labels is that of transformers.
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        logits, tensors = compute_head_logits(model, batch, head)  # m c
        losses = binary_cross_entropy(logits, tensors["targets"], weights, smoothing)
        return _make_terms(batch, losses.mean(-1).sum())

    return objective


def binary_cross_entropy(
    logits: Tensor, targets: Tensor, weights: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """The loss of every label (m c).

    With label smoothing ε the targets are 1 − ε/2 and ε/2. `weights` (2 c) are those of examples
    without and with the label.
    """
    wanted = targets.to(logits)
    weighing = None if weights is None else torch.where(wanted > 0, weights[1], weights[0])
    smoothed = wanted * (1 - smoothing) + smoothing / 2
    return F.binary_cross_entropy_with_logits(logits, smoothed, weighing, reduction="none")


def make_regression_objective(head: str) -> Objective[TaskBatch]:
    """Σ (output − target)²."""

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        logits, tensors = compute_head_logits(model, batch, head)  # m 1
        return _make_terms(batch, (logits.squeeze(-1) - tensors["targets"]).square().sum())

    return objective


def make_span_objective(head: str) -> Objective[TaskBatch]:
    """−log p(start) − log p(end), each a softmax over the tokens of a sequence.

    Devlin et al. 2018, §4.2. If there is no answer, both are [CLS].
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        logits, tensors = compute_head_logits(model, batch, head)  # m 2
        rows = _to_rows(logits, tensors["positions_by_sequence"])  # b t 2
        targets = tensors["targets"].unflatten(0, (-1, 2))  # b 2
        hits = (rows.argmax(1) == targets).all(-1).sum().float() * 2  # starts and ends are counted
        return _make_terms(batch, F.cross_entropy(rows, targets, reduction="sum"), hits.detach())

    return objective


def make_choice_objective(head: str, *, smoothing: float = 0.0) -> Objective[TaskBatch]:
    """−log softmax over the logits of the options; with label smoothing, c is their number."""

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        logits, tensors = compute_head_logits(model, batch, head)  # b 1
        rows = _to_rows(logits, tensors["sequences_by_group"]).squeeze(-1)  # g k
        targets = tensors["targets"]
        loss = F.cross_entropy(rows, targets, reduction="sum")
        if smoothing:  # label_smoothing of torch would include missing options
            is_option = rows > -torch.inf
            log_probs = rows.log_softmax(-1).masked_fill(~is_option, 0.0)
            loss = (1 - smoothing) * loss - smoothing * (
                log_probs.sum(-1) / is_option.sum(-1)
            ).sum()
        return _make_terms(batch, loss, count_correct(rows, targets))

    return objective


def compute_head_logits(
    model: Encoder, batch: TaskInput, head: str
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The logits of a head at every position (m c), and the other arrays of the batch.

    On a CPU the sequences are packed. On a GPU they are padded: such small batches are bound by
    kernel launches, and packed runs take more of them.
    """
    device = model.embeddings.word.weight.device
    if device.type == "cuda" and isinstance(batch, TaskBatch):
        batch = DeviceBatch.from_batch(device, batch)
    if isinstance(batch, DeviceBatch):
        tensors = batch.tensors
        attention_mask: AttentionLayout = tensors["attention_mask"]
        hidden = model(tensors["ids"], attention_mask, tensors["token_type_ids"])  # b t d
    else:
        arrays = {
            "positions": batch.positions,
            "targets": batch.targets,
            "positions_by_sequence": batch.positions_by_sequence(),
            "sequences_by_group": batch.sequences_by_group(),
        }
        tensors = {name: copy_to_device(array, device) for name, array in arrays.items()}
        ids, types = (copy_to_device(a, device) for a in (batch.input_ids, batch.token_type_ids))
        attention_mask = Packed.from_lengths(batch.lengths, device)
        hidden = model(ids, attention_mask, types)  # n d
    vectors = model.head_inputs(head, hidden, tensors["positions"], attention_mask)  # m d
    return upcast_to_float32(model.logits(head, vectors)), tensors


def _to_rows(logits: Tensor, indices: Tensor) -> Tensor:
    """Logits in rows by their indices (b t -> b t c); −∞ where an index is negative."""
    rows = logits[indices.clamp(min=0)]
    return rows.masked_fill((indices < 0).unsqueeze(-1), -torch.inf)


def _make_terms(batch: TaskInput, loss: Tensor, hits: Tensor | None = None) -> Terms:
    name = batch.batch.name if isinstance(batch, DeviceBatch) else batch.name
    return {name: loss} if hits is None else {name: loss, f"{name}.accuracy": hits}
