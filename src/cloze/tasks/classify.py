"""`classify`: the label of a text or a pair, or a number for it.  c labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, with_policy
from cloze.data.labelled.batch import EncodedExample
from cloze.data.labelled.examples import Origin, TextExample
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback
from cloze.tasks.door import open_model
from cloze.tasks.reading import check_pair_support, encode_long
from cloze.tasks.scoring import (
    NSP_LABELS,
    compute_logits,
    label_index,
    predicts_next_sentence,
    resolve_task,
)
from cloze.tasks.texts import check_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class TextItem(EncodedExample):
    """A text, or a window of it, as the head reads it."""

    truncated: int = 0  # pieces that a length policy left out


@dataclass(frozen=True, kw_only=True)
class Classification:
    """What a text is."""

    label: str
    score: float  # the label's probability; where the model gives a number, that number
    scores: Mapping[str, float]  # of every label, best first
    truncated: int = 0  # pieces that a length policy left out


def encode_examples(
    model: Model, examples: Sequence[TextExample], task: Task
) -> list[list[TextItem]]:
    """For each example what the head reads at [CLS]: one sequence, or one for each window."""
    texts, pairs = [e.text for e in examples], [e.pair for e in examples]
    if any(pair is not None for pair in pairs):
        check_pair_support(model)
    made: list[list[TextItem]] = []
    sequences = model.tokenizer.encode_ids_and_types(texts, pairs)
    for number, (example, (ids, type_ids)) in enumerate(zip(examples, sequences, strict=True)):
        targets = _targets(model, example)
        if len(ids) <= model.limit:
            parts = [TextItem(ids=ids, type_ids=type_ids, targets=targets, example=number)]
        else:
            many = encode_long(model, example.text, example.pair, task=task, name=example.origin)
            parts = [
                TextItem(
                    ids=one.ids,
                    type_ids=one.type_ids,
                    targets=targets,
                    example=number,
                    truncated=sum(one.num_truncated) if len(many) == 1 else 0,
                )
                for one in many
            ]
        made.append(parts)
    return made


def predict(
    model: Model,
    examples: Sequence[TextExample],
    *,
    task: Task | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Classification]:
    """What each example is, in their order.

    Of windows the mean of the scores before the softmax counts: their probabilities multiplied and
    taken to the root. So a window that is sure weighs more than one that has nothing to say, and a
    number is the plain mean.
    """
    task = resolve_task("classify", model, task)
    head = "nsp" if predicts_next_sentence(model) else "sequence"
    if head == "nsp":
        _check_seconds(examples)
    groups = encode_examples(model, examples, task)
    flat = [item for group in groups for item in group]
    scores = compute_logits(model, flat, head=head, batch_tokens=batch_tokens, progress=progress)
    return postprocess(model, examples, groups, scores)


def postprocess(
    model: Model,
    examples: Sequence[TextExample],  # noqa: ARG001 - as in the other verbs
    groups: Sequence[Sequence[TextItem]],
    scores: Sequence[Tensor],
) -> list[Classification]:
    """What the scores of the examples' items, 1 c each, say of the examples."""
    if not groups:
        return []
    parts = torch.cat(list(scores)).split([len(group) for group in groups])
    means = torch.stack([part.mean(0) for part in parts])  # b c
    labels, problem = model.labels, model.config.problem_type
    if predicts_next_sentence(model):
        labels, problem = NSP_LABELS, None
    if problem == "number":
        values = means
    elif problem == "many" or len(labels) == 1:  # each label for itself, as transformers has it
        values = means.sigmoid()
    else:
        values = means.softmax(-1)
    order = values.argsort(dim=-1, descending=True, stable=True).tolist()
    return [
        Classification(
            label=labels[best[0]],
            score=row[best[0]],
            scores={labels[n]: row[n] for n in best},
            truncated=sum(item.truncated for item in group),
        )
        for group, row, best in zip(groups, values.tolist(), order, strict=True)
    ]


@overload
def classify(
    model: Model | PathLike,
    text: str,
    pair: str | None = None,
    *,
    policy: str | None = None,
    stride: int | None = None,
) -> Classification: ...
@overload
def classify(
    model: Model | PathLike,
    text: list[str],
    pair: list[str] | None = None,
    *,
    policy: str | None = None,
    stride: int | None = None,
) -> list[Classification]: ...
def classify(
    model: Model | PathLike,
    text: str | list[str],
    pair: str | list[str] | None = None,
    *,
    policy: str | None = None,
    stride: int | None = None,
) -> Classification | list[Classification]:
    """The label of a text, or of a text and its pair, with the probability of every label.

    A model that has no labels of its own but learned BERT's pairs says of a pair whether the second
    text is "next" or "not next". A list of texts (and one of pairs) gives a list. `policy` is for
    texts longer than the model reads: head, tail, head+tail, or window (all of it, in windows that
    share `stride` tokens).
    Unsaid, it is the folder's; a folder that has none makes such a text an error.
    """
    model = open_model(model, "classify", Model)
    task = with_policy(resolve_task("classify", model), policy, stride)
    texts, pairs = check_pairs(text, pair)
    seconds: Sequence[str | None] = pairs or [None] * len(texts)
    examples = [
        TextExample(text=one, pair=other, origin=Origin(line=number))
        for number, (one, other) in enumerate(zip(texts, seconds, strict=True), 1)
    ]
    found = predict(model, examples, task=task)
    return found[0] if isinstance(text, str) else found


def _check_seconds(examples: Sequence[TextExample]) -> None:
    alone = next((one for one in examples if one.pair is None), None)
    if alone is not None:
        raise InputError(
            f"{alone.origin}: this model has no labels for a text; "
            "it tells whether one text follows another",
            fix="give the second text as pair (--pair, --pair-column), or fine-tune the model "
            "(cloze finetune classify)",
        )


def _targets(model: Model, example: TextExample) -> tuple[int | float, ...]:
    label = example.label
    if label is None or model.config.problem_type == "many":
        return ()
    if model.config.problem_type != "number":
        name = label if isinstance(label, str) else f"{label:g}"
        return (label_index(model.labels, name, example.origin),)
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"{example.origin}: the model gives numbers, and the label is {label!r}",
            fix="mend the row, or use a model that has labels",
        )
    return (value,)
