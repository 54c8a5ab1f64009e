"""What a head learns from labelled data: classes, numbers, tags, answers, choices.

Each function makes an objective. n tokens, b sequences, t longest, m places, c classes, d width,
g groups, k options.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.data.labelled.batch import TaskBatch
from cloze.nn.encoder import Encoder
from cloze.nn.layout import AttentionLayout, Packed
from cloze.objectives.core import DeviceBatch, Objective, Terms, correct, exact, on_device

TaskInput = TaskBatch | DeviceBatch


def classes(
    head: str, *, weights: Tensor | None = None, smoothing: float = 0.0
) -> Objective[TaskBatch]:
    """−Σ w_y log softmax(scores)_y at every place: the class of a text, the tags of its words.

    With `smoothing` ε the target is 1−ε for the right class and ε/c for all (Szegedy et al. 2016).
    `weights` lie where the model does.
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores, given = read(model, batch, head)  # m c
        targets = given["targets"]
        loss = F.cross_entropy(scores, targets, weights, label_smoothing=smoothing, reduction="sum")
        return _named(batch, loss, correct(scores, targets))

    return objective


def numbers(head: str) -> Objective[TaskBatch]:
    """Σ (score − number)²."""

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores, given = read(model, batch, head)  # m 1
        return _named(batch, (scores.squeeze(-1) - given["targets"]).square().sum())

    return objective


def spans(head: str) -> Objective[TaskBatch]:
    """−log p(first) − log p(last), each a softmax over the tokens of a sequence.

    Devlin et al. 2018, §4.2. Where the context does not say, both are [CLS].
    """

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores, given = read(model, batch, head)  # m 2
        rows = _in_rows(scores, given["positions_by_sequence"])  # b t 2
        targets = given["targets"].unflatten(0, (-1, 2))  # b 2
        hits = (rows.argmax(1) == targets).all(-1).sum().float() * 2  # counted are firsts and lasts
        return _named(batch, F.cross_entropy(rows, targets, reduction="sum"), hits.detach())

    return objective


def choices(head: str, *, smoothing: float = 0.0) -> Objective[TaskBatch]:
    """−log softmax over the options' scores; `smoothing` as in `classes`, c the options."""

    def objective(model: Encoder, batch: TaskInput, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores, given = read(model, batch, head)  # b 1
        rows = _in_rows(scores, given["sequences_by_group"]).squeeze(-1)  # g k
        targets = given["targets"]
        loss = F.cross_entropy(rows, targets, reduction="sum")
        if smoothing:  # torch's own would count the options that are not there
            real = rows > -torch.inf
            logs = rows.log_softmax(-1).masked_fill(~real, 0.0)
            loss = (1 - smoothing) * loss - smoothing * (logs.sum(-1) / real.sum(-1)).sum()
        return _named(batch, loss, correct(rows, targets))

    return objective


def read(model: Encoder, batch: TaskInput, head: str) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The head's scores at every place (m c), and the other arrays of the batch on the device.

    On a CPU the sequences are packed. A GPU waits for each launch of these small batches, so there
    they are padded and take one launch where packed runs take many.
    """
    device = model.embeddings.word.weight.device
    if device.type == "cuda" and isinstance(batch, TaskBatch):
        batch = DeviceBatch.on(device, batch)
    if isinstance(batch, DeviceBatch):
        given = batch.tensors
        allowed: AttentionLayout = given["attention_mask"]
        hidden = model(given["ids"], allowed, given["token_type_ids"])  # b t d
    else:
        arrays = {
            "positions": batch.positions,
            "targets": batch.targets,
            "positions_by_sequence": batch.positions_by_sequence(),
            "sequences_by_group": batch.sequences_by_group(),
        }
        given = {name: on_device(array, device) for name, array in arrays.items()}
        ids, types = (on_device(a, device) for a in (batch.input_ids, batch.token_type_ids))
        allowed = Packed.of(batch.lengths, device)
        hidden = model(ids, allowed, types)  # n d
    vectors = model.head_inputs(head, hidden, given["positions"], allowed)  # m d
    return exact(model.logits(head, vectors)), given


def _in_rows(scores: Tensor, numbers: Tensor) -> Tensor:
    """Scores laid out in rows by their numbers; what is not there has no chance."""
    rows = scores[numbers.clamp(min=0)]  # b t -> b t c
    return rows.masked_fill((numbers < 0).unsqueeze(-1), -torch.inf)


def _named(batch: TaskInput, loss: Tensor, hits: Tensor | None = None) -> Terms:
    name = batch.batch.name if isinstance(batch, DeviceBatch) else batch.name
    return {name: loss} if hits is None else {name: loss, f"{name}.accuracy": hits}
