"""Objectives of fine-tuning: classes, numbers, tags, answer spans, multiple choice.

Each can have the auxiliary loss of a causal model, the next tokens of the same sequences, with the
weight λ: L₃ = L₂ + λ·L₁ (Radford et al. 2018, eq. 5), where L₂ is the mean over the targets of the
task and L₁ the mean over the tokens.

n tokens, b sequences, t length of the longest, m positions, c classes, d width, g groups,
k options.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.batch import IGNORE_INDEX
from cloze.data.labelled.batch import TaskBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import Packed
from cloze.objectives.core import (
    DeviceBatch,
    Objective,
    Terms,
    copy_to_device,
    count_correct,
    scale_gradient,
    upcast_to_float32,
)
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy

LM_CHUNK_SIZE = 2048  # positions whose logits over the vocabulary are in memory together
TaskInput = TaskBatch | DeviceBatch


def make_classification_objective(
    head: str, *, weights: Tensor | None = None, smoothing: float = 0.0, lm_weight: float = 0.0
) -> Objective[TaskBatch]:
    """−Σ w_y log softmax(logits)_y at every position: the class of a text, the tags of its words.

    With label smoothing ε the target is 1−ε for the true class plus ε/c for all (Szegedy et al.
    2016). The class `weights` are on the model's device.
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        output = run_model(model, batch, head)
        logits, targets = output.logits, output.tensors["targets"]  # m c
        loss = F.cross_entropy(logits, targets, weights, label_smoothing=smoothing, reduction="sum")
        terms = _make_terms(batch, loss, count_correct(logits, targets))
        return terms | output.compute_lm_term(model, lm_weight)

    return objective


def make_multi_label_objective(
    head: str, *, weights: Tensor | None = None, smoothing: float = 0.0, lm_weight: float = 0.0
) -> Objective[TaskBatch]:
    """Binary cross-entropy: −1/c Σ_l y_l log σ(z_l) + (1 − y_l) log σ(−z_l), summed over examples.

    The mean over the labels is that of transformers.
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        output = run_model(model, batch, head)
        losses = binary_cross_entropy(output.logits, output.tensors["targets"], weights, smoothing)
        terms = _make_terms(batch, losses.mean(-1).sum())
        return terms | output.compute_lm_term(model, lm_weight)

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


def make_regression_objective(head: str, *, lm_weight: float = 0.0) -> Objective[TaskBatch]:
    """Σ (output − target)²."""

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        output = run_model(model, batch, head)  # m 1
        differences = output.logits.squeeze(-1) - output.tensors["targets"]
        terms = _make_terms(batch, differences.square().sum())
        return terms | output.compute_lm_term(model, lm_weight)

    return objective


def make_span_objective(head: str, *, lm_weight: float = 0.0) -> Objective[TaskBatch]:
    """−log p(start) − log p(end), each a softmax over the tokens of a sequence.

    Devlin et al. 2018, §4.2. If there is no answer, both are [CLS].
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        output = run_model(model, batch, head)  # m 2
        rows = _to_rows(output.logits, output.tensors["positions_by_sequence"])  # b t 2
        targets = output.tensors["targets"].unflatten(0, (-1, 2))  # b 2
        hits = (rows.argmax(1) == targets).all(-1).sum().float() * 2  # starts and ends are counted
        loss = F.cross_entropy(rows, targets, reduction="sum")
        return _make_terms(batch, loss, hits.detach()) | output.compute_lm_term(model, lm_weight)

    return objective


def make_choice_objective(
    head: str, *, smoothing: float = 0.0, lm_weight: float = 0.0
) -> Objective[TaskBatch]:
    """−log softmax over the logits of the options; with label smoothing, c is their number."""

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        output = run_model(model, batch, head, sum_groups=False)  # b 1
        rows = _to_rows(output.logits, output.tensors["sequences_by_group"]).squeeze(-1)  # g k
        targets = output.tensors["targets"]
        loss = F.cross_entropy(rows, targets, reduction="sum")
        if smoothing:  # label_smoothing of torch would include missing options
            is_option = rows > -torch.inf
            log_probs = rows.log_softmax(-1).masked_fill(~is_option, 0.0)
            loss = (1 - smoothing) * loss - smoothing * (
                log_probs.sum(-1) / is_option.sum(-1)
            ).sum()
        terms = _make_terms(batch, loss, count_correct(rows, targets))
        return terms | output.compute_lm_term(model, lm_weight)

    return objective


@dataclass(frozen=True)
class ModelOutput:
    """The last layer of a batch, and the logits of a head."""

    logits: Tensor  # m c
    tensors: Mapping[str, Tensor]  # the other arrays of the batch
    input_ids: Tensor  # b t, or n of packed sequences
    hidden: Tensor  # b t d, or n d
    attention_mask: Tensor | Packed

    def compute_lm_term(self, model: Encoder, weight: float) -> dict[str, Tensor]:
        """−Σ log p(xₜ₊₁ | x₁ … xₜ) of all sequences, whose gradient is scaled by the weight."""
        if not weight:
            return {}
        next_ids = self.input_ids.roll(-1, -1)
        if isinstance(self.attention_mask, Packed):
            ends = self.attention_mask.starts.roll(-1) - 1  # the last one is −1
            targets = next_ids.index_fill(0, ends % len(next_ids), IGNORE_INDEX)
        else:
            is_followed = self.attention_mask.roll(-1, -1)  # b t
            is_followed[:, -1] = False
            targets = torch.where(is_followed, next_ids, IGNORE_INDEX)
        operands = model.lm_head_operands(self.hidden.flatten(0, -2))
        loss, _ = fused_linear_cross_entropy(
            *operands, targets.flatten(), chunk=LM_CHUNK_SIZE, is_static=False
        )
        return {"lm": scale_gradient(loss, weight)}


def run_model(
    model: Encoder, batch: TaskInput, head: str, *, sum_groups: bool = True
) -> ModelOutput:
    """The logits of a head at every position, and the last layer.

    On a CPU the sequences are packed. On a GPU they are padded: such small batches are bound by
    kernel launches, and packed runs take more of them. The vectors of the sequences of a group, the
    two orders of a pair, are added before the head, unless `sum_groups` is false.
    """
    device = model.embeddings.word.weight.device
    if device.type == "cuda" and isinstance(batch, TaskBatch):
        batch = DeviceBatch.from_batch(device, batch)
    if isinstance(batch, DeviceBatch):
        tensors = batch.tensors
        attention_mask: Tensor | Packed = tensors["attention_mask"]
        ids = tensors["ids"]
        hidden = model(ids, attention_mask, tensors["token_type_ids"])  # b t d
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
    groups = tensors["sequences_by_group"]
    if sum_groups and groups.shape[1] > 1:
        vectors = _to_rows(vectors, groups, 0.0).sum(1)  # g k d -> g d
    logits = upcast_to_float32(model.logits(head, vectors))
    return ModelOutput(logits, tensors, ids, hidden, attention_mask)


def _to_rows(values: Tensor, indices: Tensor, missing: float = -torch.inf) -> Tensor:
    """Values in rows by their indices (b t -> b t c); `missing` where an index is negative."""
    rows = values[indices.clamp(min=0)]
    return rows.masked_fill((indices < 0).unsqueeze(-1), missing)


def _make_terms(batch: TaskInput, loss: Tensor, hits: Tensor | None = None) -> dict[str, Tensor]:
    name = batch.batch.name if isinstance(batch, DeviceBatch) else batch.name
    return {name: loss} if hits is None else {name: loss, f"{name}.accuracy": hits}
