"""Multiple choice: DREAM's JSON, and rows with a text, a question and options.

Data sets use different names: SWAG has `startphrase`, `ending0` … `label`; RACE `article`,
`question`, `options`, `answer`; CommonsenseQA `question`, `choices: {label, text}`, `answerKey`;
COPA `premise`, `choice1`, `choice2`, `label`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from cloze.data.labelled.examples import ChoiceExample
from cloze.data.labelled.records import TABLE_FORMATS, DataInput, Record, read_inputs, read_mappings
from cloze.data.readers import as_text
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
    return read_inputs(sources, TABLE_FORMATS, _read, on_error)


def _read(part: DataInput) -> Iterator[ChoiceExample | InputError]:
    number = count(1)
    for record in read_mappings(part, TABLE_FORMATS):
        if isinstance(record, InputError):
            yield record
            continue
        match record.value:
            case [list(turns), list(questions), name] if questions:
                for place, question in enumerate(questions, 1):
                    at = record._replace(value=question, line=next(number))
                    yield _outcome(at, turns, f"{name}#{place}")
            case _:
                yield _outcome(record)


def _outcome(
    record: Record, turns: object = None, name: str | None = None
) -> ChoiceExample | InputError:
    try:
        return _example(record, turns, name)
    except InputError as error:
        return error


def _example(record: Record, turns: object, name: str | None) -> ChoiceExample:
    value, where = record.value, record.where
    if not isinstance(value, Mapping):
        raise InputError(
            f"{where}: {repr(value)[:40]} is not a question with options",
            fix='write {"text": …, "question": …, "options": […], "label": 0}',
        )
    value = {name: said for name, said in value.items() if said is not None}
    texts = [value[name] for name in TEXTS if name in value] if turns is None else [turns]
    asked = [value[name] for name in QUESTIONS if name in value]
    if not texts and not asked:
        raise InputError(
            f"{where}: there is neither a text nor a question",
            fix=f"use one of these names for the text: {', '.join(TEXTS)}",
        )
    options, names = _options(value, where)
    return ChoiceExample(
        text=as_text((texts or asked)[0], where),
        question=as_text(asked[0], where) if texts and asked else None,
        options=options,
        label=_label(value, options, names, where),
        origin=record.origin(value.get("id") if name is None else name),
    )


def _options(value: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], Sequence[str]]:
    """The options and their names."""
    listed = next((value[name] for name in OPTIONS if name in value), None)
    names: Sequence[str] = ()
    match listed:
        case {"text": list(texts), "label": list(called)} if len(texts) == len(called):
            listed, names = texts, [str(one) for one in called]
        case None:
            numbered = sorted(key for key in value if _NUMBERED.fullmatch(str(key)))
            listed = [value[key] for key in numbered]
    if not isinstance(listed, list) or len(listed) < MIN_OPTIONS:
        raise InputError(
            f"{where}: there are no options",
            fix=f"add a list of two or more under one of {', '.join(OPTIONS)}",
        )
    options = tuple(as_text(option, where) for option in listed)
    return options, names or [chr(ord("A") + number) for number, _ in enumerate(options)]


def _label(
    value: Mapping[str, Any], options: Sequence[str], names: Sequence[str], where: str
) -> int | None:
    label = next((value[name] for name in LABELS if name in value), None)
    called = "" if label is None else str(label).strip()
    if called in ("", "-1"):
        return None
    readings = {number for number, name in enumerate(names) if name == called.upper()}
    if isinstance(label, str):
        readings |= {number for number, option in enumerate(options) if option.strip() == called}
    if re.fullmatch("[0-9]{1,4}", called) and not names[0].isdecimal():
        readings |= {int(called)} & set(range(len(options)))
    if len(readings) != 1:
        raise InputError(
            f"{where}: the label {repr(label)[:40]} matches "
            + ("several options" if readings else f"none of {len(options)} options"),
            fix="use the index of the correct option, from 0, its letter, or its text",
        )
    return readings.pop()
