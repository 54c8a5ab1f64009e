"""`choose`: multiple choice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack, overload

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.checkpoint.task import Task, override_truncation
from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.examples import ChoiceExample, Origin
from cloze.data.objects import open_rows
from cloze.errors import InputError
from cloze.files import PathLike
from cloze.progress import ProgressCallback, ProgressOption, with_progress
from cloze.results import Result, Results
from cloze.tasks.inference import (
    TextItem,
    check_pair_support,
    compute_logits,
    encode_long,
    resolve_task,
)
from cloze.tasks.inputs import Texts, check_text, check_texts, open_model, warn_truncated
from cloze.text.alignment import TokenAlignment


@dataclass(frozen=True, kw_only=True, repr=False)
class Choice(Result):
    """The best option for a text."""

    context: str
    question: str | None = None
    options: tuple[str, ...]
    option: int  # its index, from 0
    text: str
    score: float  # its probability
    scores: tuple[float, ...]  # of every option, in their order
    truncated_chars: int = 0  # characters left out by truncation, the most for any option

    record_columns = ("text", "question", "option", "option_text", "score")

    def rank_options(self) -> list[tuple[int, str, float]]:
        """Every option with its index and probability, best first."""
        options = zip(range(len(self.options)), self.options, self.scores, strict=True)
        return sorted(options, key=lambda option: -option[2])

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text."""
        return {
            "text": self.context,
            "question": self.question,
            "options": list(self.options),
            "choices": [
                {"option": index, "text": text, "score": score}
                for index, text, score in self.rank_options()
            ],
            "truncated_chars": self.truncated_chars,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per option, best first; `option` is its index, from 0."""
        return [
            dict(zip(self.record_columns, (self.context, self.question, *option), strict=True))
            for option in self.rank_options()
        ]

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_bars, render_heading, render_result, render_text

        question = [render_heading(self.question)] if self.question else []
        bars = render_bars(
            ((text, score) for _, text, score in self.rank_options()), bold=(self.text,)
        )
        parts = render_text(self.context), *question, bars
        return render_result(*parts, truncated_chars=self.truncated_chars)


class ChooseOptions(TypedDict, total=False):
    """The options of `choose`."""

    truncation: str | None
    batch_tokens: int | None
    progress: ProgressOption


@overload
def choose(  # type: ignore[overload-overlap]  # a str is an iterable of str, too
    model: Model | PathLike,
    text: str,
    options: Sequence[str],
    *,
    question: str | None = None,
    **settings: Unpack[ChooseOptions],
) -> Choice: ...
@overload
def choose(
    model: Model | PathLike,
    text: Texts,
    options: Iterable[Sequence[str]] | None = None,
    *,
    question: Iterable[str | None] | None = None,
    **settings: Unpack[ChooseOptions],
) -> Results[Choice]: ...
@with_progress
def choose(
    model: Model | PathLike,
    text: str | Texts,
    options: Sequence[str] | Iterable[Sequence[str]] | None = None,
    *,
    question: str | Iterable[str | None] | None = None,
    truncation: str | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Choice | Results[Choice]:
    """Choose the option that fits a text best, or that answers a question about the text.

    Args:
        model: a model for multiple choice, or its folder.
        text: a text, or several: a list, a column, or a table with texts and options.
        options: two or more options; for several texts, a list of options for each; not for a
            table.
        question: a question about the text; for several texts, one for each.
        truncation: for texts that are too long: head, tail, head+tail or error. Default: the
            setting of the folder, else head; then a warning says how much was not read.
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        progress: show a progress bar, or not; a function is called with stage, done and total
            (default: a bar for work that takes seconds, on a terminal or in a notebook).
    """
    model = open_model(model, "choose")
    task = override_truncation(resolve_task("choose", model), truncation, None)
    if options is None:
        if isinstance(text, str):
            raise InputError("there are no options", fix="pass two or more options")
        # labels, if the table has them, are not used
        examples = [replace(one, label=None) for one in read_choice_examples(open_rows(text))]
    elif isinstance(text, str):
        examples = [_make_example(text, options, question, 1)]
    else:
        texts = check_texts(text)
        questions = [None] * len(texts) if question is None else list(question)
        several = list(options)
        if not len(texts) == len(several) == len(questions):
            raise InputError(
                f"there are {len(texts):,} texts, {len(several):,} lists of options and "
                f"{len(questions):,} questions",
                fix="pass one list of options and one question (or None) for each text",
            )
        rows = zip(texts, several, questions, strict=True)
        examples = [_make_example(*row, number) for number, row in enumerate(rows, 1)]
    found = predict(model, examples, task=task, batch_tokens=batch_tokens, progress=progress)
    if truncation is None:
        fix = "choose a truncation (head, tail, head+tail or error)"
        warn_truncated([one.truncated_chars for one in found], model.max_length, fix=fix)
    return found[0] if isinstance(text, str) else Results(found)


def _make_example(text: str, options: object, question: object, number: int) -> ChoiceExample:
    return ChoiceExample(
        text=text,
        options=tuple(check_texts(options, "option")),
        question=None if question is None else check_text(question, "the question"),
        origin=Origin(line=number),
    )


def encode_examples(
    model: Model, examples: Sequence[ChoiceExample], task: Task
) -> list[list[TextItem]]:
    """Encode each example as one sequence per option: [CLS] text [SEP] question option [SEP].

    Truncation shortens the longer of the two parts first, usually the text. The first sequence of
    an example has the target, the index of the correct option.
    """
    check_pair_support(model)
    rows = [(example, option) for example in examples for option in _second_texts(example)]
    sequences = iter(
        model.tokenizer.encode_ids_and_types(
            [example.text for example, _ in rows],
            [option for _, option in rows],
            limit=model.max_length,
        )
    )
    groups: list[list[TextItem]] = []
    for number, example in enumerate(examples):
        group: list[TextItem] = []
        for index, second in enumerate(_second_texts(example)):
            (ids, type_ids), truncated = next(sequences), 0
            if len(ids) > model.max_length:
                encoding = _truncate(model, example, second, task)
                ids, type_ids = encoding.ids, encoding.type_ids
                truncated = encoding.truncated_chars
            targets = () if example.label is None or index else (_check_target(example),)
            group.append(
                TextItem(
                    ids=ids,
                    type_ids=type_ids,
                    targets=targets,
                    example=number,
                    truncated_chars=truncated,
                )
            )
        groups.append(group)
    return groups


def predict(
    model: Model,
    examples: Sequence[ChoiceExample],
    *,
    task: Task | None = None,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> list[Choice]:
    """Choose an option for each example; results are in the order of the examples."""
    groups = encode_examples(model, examples, resolve_task("choose", model, task))
    flat = [item for group in groups for item in group]
    logits = compute_logits(
        model, flat, head="choice", batch_tokens=batch_tokens, progress=progress
    )
    return postprocess(model, examples, groups, logits)


def postprocess(
    model: Model,  # noqa: ARG001 - as in the other tasks
    examples: Sequence[ChoiceExample],
    groups: Sequence[Sequence[TextItem]],
    logits: Sequence[Tensor],
) -> list[Choice]:
    """Compute the choice of each example from the logits of its items, one each."""
    if not groups:
        return []
    parts = torch.cat(list(logits)).flatten().split([len(group) for group in groups])
    choices: list[Choice] = []
    for example, group, part in zip(examples, groups, parts, strict=True):
        probabilities = part.softmax(-1).tolist()
        best = int(part.argmax())
        choices.append(
            Choice(
                context=example.text,
                question=example.question,
                options=tuple(example.options),
                option=best,
                text=example.options[best],
                score=probabilities[best],
                scores=tuple(probabilities),
                truncated_chars=max(item.truncated_chars for item in group),
            )
        )
    return choices


def _second_texts(example: ChoiceExample) -> list[str]:
    if not example.options:
        raise InputError(f"{example.origin}: there are no options", fix="give two or more options")
    if example.question is None:
        return list(example.options)
    return [f"{example.question} {option}" for option in example.options]


def _truncate(model: Model, example: ChoiceExample, second: str, task: Task) -> TokenAlignment:
    if task.truncation_strategy == "window":
        raise InputError(
            "multiple choice does not support truncation 'window': it needs a single sequence",
            fix="use truncation='head', 'tail' or 'head+tail' (command line: --truncation head)",
        )
    try:
        (encoding,) = encode_long(model, example.text, second, task=task, name=example.origin)
    except InputError as error:
        if task.truncation_strategy != "error":
            raise
        fix = "shorten the text, or choose a truncation: head, tail, head+tail"
        raise InputError(error.problem, fix=fix) from None
    return encoding


def _check_target(example: ChoiceExample) -> int:
    assert example.label is not None
    if not 0 <= example.label < len(example.options):
        raise InputError(
            f"{example.origin}: the label is {example.label}, but there are "
            f"{len(example.options)} options",
            fix=f"use a label from 0 to {len(example.options) - 1}",
        )
    return example.label
