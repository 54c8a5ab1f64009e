"""`choose`: which of several options goes best with a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, with_policy
from cloze.data.labelled.examples import ChoiceExample, Origin
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback
from cloze.tasks.classify import TextItem
from cloze.tasks.door import open_model
from cloze.tasks.reading import check_pair_support, encode_long
from cloze.tasks.scoring import compute_logits, resolve_task
from cloze.tasks.texts import check_text, check_texts
from cloze.text.alignment import TokenAlignment


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The option that goes best."""

    option: int  # its number, from 0
    text: str
    score: float  # its probability
    scores: tuple[float, ...]  # of every option, in their order
    truncated: int = 0  # pieces that a length policy left out, of all options together


def encode_examples(
    model: Model, examples: Sequence[ChoiceExample], task: Task
) -> list[list[TextItem]]:
    """For each example one sequence per option: [CLS] text [SEP] question option [SEP].

    What is too long is cut by the policy, first from the longer of the two: the text, as a rule.
    The target, the number of the right option, is on the first.
    """
    check_pair_support(model)
    rows = [(example, option) for example in examples for option in _seconds(example)]
    sequences = iter(
        model.tokenizer.encode_ids_and_types(
            [example.text for example, _ in rows], [o for _, o in rows]
        )
    )
    made: list[list[TextItem]] = []
    for number, example in enumerate(examples):
        group: list[TextItem] = []
        for place, second in enumerate(_seconds(example)):
            (ids, type_ids), cut = next(sequences), 0
            if len(ids) > model.limit:
                encoding = _cut(model, example, second, task, len(ids))
                ids, type_ids, cut = encoding.ids, encoding.type_ids, sum(encoding.num_truncated)
            targets = () if example.label is None or place else (_checked(example),)
            group.append(
                TextItem(ids=ids, type_ids=type_ids, targets=targets, example=number, truncated=cut)
            )
        made.append(group)
    return made


def predict(
    model: Model,
    examples: Sequence[ChoiceExample],
    *,
    task: Task | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Choice]:
    """The best option of each example, in their order."""
    groups = encode_examples(model, examples, resolve_task("choose", model, task))
    flat = [item for group in groups for item in group]
    scores = compute_logits(
        model, flat, head="choice", batch_tokens=batch_tokens, progress=progress
    )
    return postprocess(model, examples, groups, scores)


def postprocess(
    model: Model,  # noqa: ARG001 - as in the other verbs
    examples: Sequence[ChoiceExample],
    groups: Sequence[Sequence[TextItem]],
    scores: Sequence[Tensor],
) -> list[Choice]:
    """What the scores of the examples' items, one each, say of the examples."""
    if not groups:
        return []
    parts = torch.cat(list(scores)).flatten().split([len(group) for group in groups])
    chosen: list[Choice] = []
    for example, group, part in zip(examples, groups, parts, strict=True):
        chances = part.softmax(-1).tolist()
        best = int(part.argmax())
        chosen.append(
            Choice(
                option=best,
                text=example.options[best],
                score=chances[best],
                scores=tuple(chances),
                truncated=sum(item.truncated for item in group),
            )
        )
    return chosen


def choose(
    model: Model | PathLike,
    text: str,
    options: Sequence[str],
    *,
    question: str | None = None,
    policy: str | None = None,
) -> Choice:
    """The option that goes best with a text, or with a text and a question about it.

    `policy` (head, tail, head+tail) says what to cut of a text longer than the model reads; unsaid
    it is the folder's, and a folder that has none makes such a text an error.
    """
    model = open_model(model, "choose", Model)
    task = with_policy(resolve_task("choose", model), policy, None)
    example = ChoiceExample(
        text=check_text(text, "the text"),
        options=tuple(check_texts(options, "option")),
        question=None if question is None else check_text(question, "the question"),
        origin=Origin(line=1),
    )
    return predict(model, [example], task=task)[0]


def _seconds(example: ChoiceExample) -> list[str]:
    if not example.options:
        raise InputError(f"{example.origin}: there is no option", fix="give two or more")
    if example.question is None:
        return list(example.options)
    return [f"{example.question} {option}" for option in example.options]


def _cut(
    model: Model, example: ChoiceExample, second: str, task: Task, count: int
) -> TokenAlignment:
    if task.policy is None and not model.pooling:
        raise InputError(
            f"{example.origin}: the text has {count:,} pieces, an option and special tokens "
            f"included; the limit is {model.limit:,}",
            fix="shorten it, or choose a length policy: head, tail, head+tail",
        )
    if task.policy == "window":
        raise InputError(
            "an option is read with its text in one sequence, not in windows",
            fix="choose the policy head, tail or head+tail",
        )
    (encoding,) = encode_long(model, example.text, second, task=task, name=example.origin)
    return encoding


def _checked(example: ChoiceExample) -> int:
    assert example.label is not None
    if not 0 <= example.label < len(example.options):
        raise InputError(
            f"{example.origin}: there is no option {example.label} among {len(example.options)}",
            fix="number the options from 0",
        )
    return example.label
