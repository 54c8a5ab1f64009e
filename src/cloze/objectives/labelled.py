"""What a head learns from labelled data: classes, numbers, tags, answers, choices.

Each function makes an objective. n tokens, b sequences, m places, c classes, d width, g groups.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from cloze.data.labelled.batch import TaskBatch
from cloze.nn.encoder import Encoder
from cloze.nn.packed import Packed
from cloze.objectives.core import Objective, Terms, correct, exact, on_device

FULL_LENGTHS = 8  # on a GPU sequences are padded to a multiple of this


def classes(
    head: str, *, weights: Tensor | None = None, smoothing: float = 0.0
) -> Objective[TaskBatch]:
    """−Σ w_y log softmax(scores)_y at every place: the class of a text, the tags of its words.

    With `smoothing` ε the target is 1−ε for the right class and ε/c for all (Szegedy et al. 2016).
    """

    def objective(model: Encoder, batch: TaskBatch, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores = exact(model.logits(head, vectors(model, batch)))  # m c
        targets = on_device(batch.targets, scores.device)
        by_class = None if weights is None else weights.to(scores.device)
        loss = F.cross_entropy(
            scores, targets, by_class, label_smoothing=smoothing, reduction="sum"
        )
        return {batch.name: loss, f"{batch.name}.accuracy": correct(scores, targets)}

    return objective


def numbers(head: str) -> Objective[TaskBatch]:
    """Σ (score − number)²."""

    def objective(model: Encoder, batch: TaskBatch, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores = exact(model.logits(head, vectors(model, batch))).squeeze(-1)  # m
        return {batch.name: (scores - on_device(batch.targets, scores.device)).square().sum()}

    return objective


def spans(head: str) -> Objective[TaskBatch]:
    """−log p(first) − log p(last), each a softmax over the tokens of a sequence.

    Devlin et al. 2018, §4.2. Where the context does not say, both are [CLS].
    """

    def objective(model: Encoder, batch: TaskBatch, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores = exact(model.logits(head, vectors(model, batch)))  # n 2
        targets = on_device(batch.targets, scores.device).unflatten(0, (-1, 2))  # b 2
        rows = _ragged(scores, batch.sizes.tolist())  # b t 2
        hits = (rows.argmax(1) == targets).all(-1).sum().float() * 2  # counted are firsts and lasts
        loss = F.cross_entropy(rows, targets, reduction="sum")
        return {batch.name: loss, f"{batch.name}.accuracy": hits.detach()}

    return objective


def choices(head: str) -> Objective[TaskBatch]:
    """−log softmax over the options' scores."""

    def objective(model: Encoder, batch: TaskBatch, rng: torch.Generator | None = None) -> Terms:  # noqa: ARG001
        scores = exact(model.logits(head, vectors(model, batch)))  # b 1
        rows = _ragged(scores, batch.groups.tolist()).squeeze(-1)  # g k
        targets = on_device(batch.targets, scores.device)
        loss = F.cross_entropy(rows, targets, reduction="sum")
        return {batch.name: loss, f"{batch.name}.accuracy": correct(rows, targets)}

    return objective


def vectors(model: Encoder, batch: TaskBatch) -> Tensor:
    """The last layer where the head reads it, m d.

    On a CPU the sequences are packed. A GPU waits for each launch of these small batches, so there
    they are padded and take one launch where packed runs take many.
    """
    device = model.embeddings.word.weight.device
    if device.type != "cuda":
        ids, types = (on_device(a, device) for a in (batch.input_ids, batch.token_type_ids))
        hidden = model(ids, Packed.of(batch.lengths, device), types)  # n d
        return hidden[on_device(batch.places, device)]
    rows = batch.padded(FULL_LENGTHS)
    ids, real, types, places = (on_device(array, device) for array in rows)
    return model(ids, real, types).flatten(0, 1)[places]  # b t d -> m d


def _ragged(scores: Tensor, sizes: list[int]) -> Tensor:
    """Rows of several lengths as a rectangle; what is not there has no chance."""
    return pad_sequence(list(scores.split(sizes)), batch_first=True, padding_value=-torch.inf)
