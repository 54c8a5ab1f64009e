"""What a head says about items, and what the four verbs of fine-tuned models share.

n tokens of a packed batch, m places in it, p places of one item, c scores of the head.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import accumulate, islice
from typing import TypeVar

import torch
from torch import Tensor

from cloze.checkpoint.abilities import can
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import TASK_HEADS, Task, task_of_head
from cloze.config import in_range
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import Origin
from cloze.errors import InputError
from cloze.nn.layout import Packed
from cloze.nn.utils import eval_mode
from cloze.progress import ProgressCallback
from cloze.tasks.batches import batch_by_tokens
from cloze.tasks.embed import BATCH_TOKENS
from cloze.tasks.features import apply_reader, extract_features

ON_GPU = 16_384  # tokens of a batch there: enough to keep it busy, little enough for a small one
CHUNK = 4096  # examples that are sorted by length and computed together, of a stream
SHOWN_LABELS = 20  # in an error
NSP_LABELS = ("next", "not next")  # labels 0 and 1 of the head that learned BERT's pairs (nsp)

E = TypeVar("E")
P = TypeVar("P")


@torch.inference_mode()
def compute_logits(
    model: Model,
    items: Sequence[EncodedExample],
    *,
    head: str,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Tensor]:
    """For each item, in order, the head's scores at its places (p c), as float32 on the CPU.

    Sequences of about one length are packed together, without padding, up to `batch_tokens`. A
    model that has a reader in place of a head is read by it.
    """
    most = batch_tokens or (BATCH_TOKENS if model.device.type == "cpu" else ON_GPU)
    in_range("batch_tokens", most, 1, 1 << 30)
    if model.reader is not None:
        return _read_by_reader(model, items, head, most, progress)
    found: dict[int, Tensor] = {}
    with eval_mode(model.module):
        for batch in batch_by_tokens([len(item.ids) for item in items], most):
            parts = _scores(model, [items[n] for n in batch], head)
            found.update(zip(batch, parts, strict=True))
            if progress:
                progress("sequences", len(found), len(items))
    return [found[n] for n in range(len(items))]


def _read_by_reader(
    model: Model,
    items: Sequence[EncodedExample],
    head: str,
    most: int,
    progress: ProgressCallback | None,
) -> list[Tensor]:
    assert model.reader is not None
    assert model.task is not None
    assert model.task.features is not None
    pooled = head != "token"
    filled = [n for n, item in enumerate(items) if item.positions]  # it cannot read nothing
    with eval_mode(model.module), eval_mode(model.reader):
        vectors = extract_features(
            model,
            [items[n] for n in filled],
            model.task.features,
            pooled=pooled,
            batch_tokens=most,
            progress=progress,
        )
        found = dict(zip(filled, apply_reader(model, vectors), strict=True))
    return [found.get(n, torch.empty(0, len(model.labels))) for n in range(len(items))]


def _scores(model: Model, items: Sequence[EncodedExample], head: str) -> tuple[Tensor, ...]:
    device = model.device
    packed = Packed.of((len(item.ids) for item in items), device)
    starts = accumulate(packed.lengths, initial=0)
    places = [
        start + place
        for start, item in zip(starts, items, strict=False)
        for place in item.positions
    ]
    vectors = model.module(
        torch.tensor([id_ for item in items for id_ in item.ids], device=device),
        packed,
        torch.tensor([type_ for item in items for type_ in item.type_ids], device=device),
    )  # n d
    at = torch.tensor(places, dtype=torch.long, device=device)
    read = model.module.head_inputs(head, vectors, at, packed)  # m d
    scores = model.module.logits(head, read).float().cpu()  # m c
    return scores.split([len(item.positions) for item in items])


def resolve_task(verb: str, model: Model, task: Task | None = None) -> Task:
    """The task given or the model's own, if its head can do it; else what it can do."""
    can(model, verb)
    head = TASK_HEADS[verb]
    reads = model.reader is not None and model.task is not None and model.task.name == verb
    if (
        head not in model.heads
        and not reads
        and not (verb == "classify" and predicts_next_sentence(model))
    ):
        able = model.task or task_of_head(model.head)
        raise InputError(
            f"this model cannot {verb}: its head is {model.head or 'missing'}",
            fix=f"use it with `{able.name}`"
            if able
            else f"fine-tune it first (cloze finetune {verb}), or load a folder with a {head} head",
        )
    if task is not None:
        return task
    own = model.task or task_of_head(head)
    if own is None or own.name != verb:  # a folder with several heads tells of the first
        own = task_of_head(head)
    assert own is not None
    return own


def predicts_next_sentence(model: Model) -> bool:
    """Whether all it can say of a pair is if one text follows the other: it has no classifier."""
    return "nsp" in model.heads and "sequence" not in model.heads and model.reader is None


def label_index(labels: Sequence[str], label: str, origin: Origin) -> int:
    """The number of a label, or an error that names where it stood and the labels near to it."""
    try:
        return labels.index(label)
    except ValueError:
        near = get_close_matches(label, labels, n=3)
        known = ", ".join(labels[:SHOWN_LABELS])
        more = ", …" if len(labels) > SHOWN_LABELS else ""
        raise InputError(
            f"{origin}: the model has no label {label!r}",
            fix=f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else f"its labels are {known}{more}",
        ) from None


def predict_each(
    predict: Callable[[Sequence[E]], Sequence[P]], examples: Iterable[E], *, chunk: int = CHUNK
) -> Iterator[tuple[E, P | InputError]]:
    """Each example with what `predict` makes of it; a bad one does not stop the others."""
    waiting = iter(examples)
    while batch := list(islice(waiting, chunk)):
        yield from zip(batch, _halving(predict, batch), strict=True)


def _halving(
    predict: Callable[[Sequence[E]], Sequence[P]], examples: Sequence[E]
) -> list[P | InputError]:
    """A verb reads all it is given before it computes, so the bad ones are found at little cost."""
    try:
        return list(predict(examples))
    except InputError as error:
        if len(examples) == 1:
            return [error]
        half = len(examples) // 2
        return _halving(predict, examples[:half]) + _halving(predict, examples[half:])
