"""Multiple choice: DREAM's JSON, and rows with a text, a question and options.

Data sets use different names: SWAG has `startphrase`, `ending0` … `label`; RACE `article`,
`question`, `options`, `answer`, or as it was published `article`, `questions`, `options` and
`answers`, a file for each article; CommonsenseQA `question`, `choices: {label, text}`, `answerKey`;
COPA `premise`, `choice1`, `choice2`, `label`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from cloze.data.labelled.examples import ChoiceExample
from cloze.data.labelled.records import TABLE_FORMATS, DataInput, Record, read_inputs, read_mappings
from cloze.data.readers import parse_text
from cloze.data.sources import OnError, Source
from cloze.errors import InputError

TEXTS = (
    "context", "text", "article", "passage", "startphrase", "ctx", "premise", "dialogue", "goal",
    "sentence",
)  # fmt: skip
QUESTIONS = ("question", "question_stem", "query")
OPTIONS = ("options", "choices", "endings", "choice")
LABELS = ("label", "answer", "answerKey", "answer_key", "gold", "correct")
_NUMBERED = re.compile(r"(?:ending|choice|option|sol|answer)_?([0-9]|[A-Z])")
MIN_OPTIONS = 2


def read_choice_examples(
    sources: Source | list[Source], *, on_error: OnError = "raise"
) -> Iterator[ChoiceExample]:
    """Read the questions of all sources lazily, in order.

    The label is the index of the correct option from 0, its letter, or its text; a label that is
    missing, empty or -1 is unknown. A question without a text is the text. In DREAM's files `line`
    is the number of the question, and the questions about a dialogue are numbered #1, #2, ….
    """
    return read_inputs(sources, TABLE_FORMATS, _read_input, on_error, "choose")


def _read_input(part: DataInput) -> Iterator[ChoiceExample | InputError]:
    number = count(1)
    for record in read_mappings(part, TABLE_FORMATS):
        if isinstance(record, InputError):
            yield record
            continue
        match record.value:
            case [list(turns), list(questions), name] if questions:
                for index, question in enumerate(questions, 1):
                    row = record._replace(value=question, line=next(number))
                    yield _try_parse(row, turns, f"{name}#{index}")
            case {"article": _, "questions": list(questions)}:
                yield from _read_race(record, questions)
            case _:
                yield _try_parse(record)


def _read_race(record: Record, questions: Sequence[object]) -> Iterator[ChoiceExample | InputError]:
    """The questions about an article, with lists of options and the letters of the answers."""
    article, options, answers = (record.value.get(key) for key in ("article", "options", "answers"))
    if answers is None:  # unknown, as in test data
        answers = [None] * len(questions)
    for key, listed in (("options", options), ("answers", answers)):
        if not isinstance(listed, list) or len(listed) != len(questions):
            count = len(listed) if isinstance(listed, list) else "no"
            yield InputError(
                f"{record.where}: {len(questions)} questions, but {count} {key}",
                fix=f"give one item of {key} for each question",
            )
            return
    name = record.value.get("id")
    rows = zip(questions, options, answers, strict=True)
    for number, (question, choices, answer) in enumerate(rows, 1):
        row = {"article": article, "question": question, "options": choices, "answer": answer}
        try:
            where = f"{record.where}: question {number}"
            yield _parse_example(
                record._replace(value=row), None, name and f"{name}#{number}", where
            )
        except InputError as error:
            yield error


def _try_parse(
    record: Record, turns: object = None, name: str | None = None
) -> ChoiceExample | InputError:
    try:
        return _parse_example(record, turns, name)
    except InputError as error:
        return error


def _parse_example(
    record: Record, turns: object, name: str | None, where: str | None = None
) -> ChoiceExample:
    value, where = record.value, where or record.where
    if not isinstance(value, Mapping):
        raise InputError(
            f"{where}: {repr(value)[:40]} is not a question with options",
            fix='write {"text": …, "question": …, "options": […], "label": 0}',
        )
    value = {key: entry for key, entry in value.items() if entry is not None}
    texts = [value[key] for key in TEXTS if key in value] if turns is None else [turns]
    questions = [value[key] for key in QUESTIONS if key in value]
    if not texts and not questions:
        raise InputError(
            f"{where}: multiple choice needs a context or a question, but both columns are missing",
            fix=f"add a column for the context, with one of these names: {', '.join(TEXTS)}",
        )
    options, names = _parse_options(value, where)
    return ChoiceExample(
        text=parse_text((texts or questions)[0], where),
        question=parse_text(questions[0], where) if texts and questions else None,
        options=options,
        label=_parse_label(value, options, names, where),
        origin=record.make_origin(value.get("id") if name is None else name),
    )


def _parse_options(value: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], Sequence[str]]:
    """The options and their names."""
    listed = next((value[name] for name in OPTIONS if name in value), None)
    names: Sequence[str] = ()
    match listed:
        case {"text": list(texts), "label": list(labels)} if len(texts) == len(labels):
            listed, names = texts, [str(label) for label in labels]
        case None:
            numbered = sorted(key for key in value if _NUMBERED.fullmatch(str(key)))
            listed = [value[key] for key in numbered]
    if not isinstance(listed, list) or len(listed) < MIN_OPTIONS:
        raise InputError(
            f"{where}: there are no options",
            fix="add a list of two or more options under one of the keys "
            + ", ".join(map(repr, OPTIONS)),
        )
    options = tuple(parse_text(option, where) for option in listed)
    return options, names or [chr(ord("A") + number) for number, _ in enumerate(options)]


def _parse_label(
    value: Mapping[str, Any], options: Sequence[str], names: Sequence[str], where: str
) -> int | None:
    label = next((value[name] for name in LABELS if name in value), None)
    text = "" if label is None else str(label).strip()
    if text in ("", "-1"):
        return None
    matches = {number for number, name in enumerate(names) if name == text.upper()}
    if isinstance(label, str):
        matches |= {number for number, option in enumerate(options) if option.strip() == text}
    if re.fullmatch("[0-9]{1,4}", text) and not names[0].isdecimal():
        matches |= {int(text)} & set(range(len(options)))
    if len(matches) != 1:
        raise InputError(
            f"{where}: the label {repr(label)[:40]} matches "
            + ("several options" if matches else f"none of {len(options)} options"),
            fix="use the index of the correct option, from 0, its letter, or its text",
        )
    return matches.pop()
