"""Questions about a context: SQuAD's JSON, 1.1 and 2.0, and the flat rows of data sets.

CMRC 2018 and XQuAD have SQuAD's form. A flat row is `{"id", "question", "context", "answers":
{"text": […], "answer_start": […]}}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from cloze.data.labelled.examples import Answer, QuestionExample
from cloze.data.labelled.records import JSON_FORMATS, DataInput, Record, read_inputs, read_records
from cloze.data.readers import as_text
from cloze.data.sources import OnError, Source
from cloze.errors import InputError

NOT_IN_CONTEXT = -1  # as `answer_start`: the answer is right, but does not stand in the context


def read_question_examples(
    sources: Source | list[Source], *, on_error: OnError = "raise"
) -> Iterator[QuestionExample]:
    """Every question of every source, in order.

    An answer that is not where it is said to be is moved to where it stands nearest to that; one
    that stands nowhere is an error, unless its `answer_start` is -1: CMRC 2018 has such answers
    beside others, they count in scoring and come last. Their `start` stays -1. A question with an
    empty list of answers has none in the context; without a list they are not known. In a file
    that is one JSON value, `line` is the number of the question.
    """
    return read_inputs(sources, JSON_FORMATS, _read, on_error)


def _read(part: DataInput) -> Iterator[QuestionExample | InputError]:
    number = count(1)
    for record in read_records(part, JSON_FORMATS):
        if isinstance(record, InputError):
            yield record
            continue
        nested = isinstance(record.value, Mapping) and "question" not in record.value
        for context, question in _flat(record.value):
            try:
                line = next(number) if nested else record.line
                yield _example(context, record._replace(value=question, line=line))
            except InputError as error:
                yield error


def _flat(value: object) -> Iterator[tuple[object, object]]:
    """The questions of an article, a paragraph or a row, each with its context."""
    match value:
        case {"paragraphs": list(paragraphs)}:
            for paragraph in paragraphs:
                yield from _flat(paragraph)
        case {"context": context, "qas": list(questions)}:
            for question in questions:
                yield context, question
        case {"context": context}:
            yield context, value
        case _:
            yield None, value


def _example(context: object, record: Record) -> QuestionExample:
    value = record.value
    if context is None or not isinstance(value, Mapping) or "question" not in value:
        raise InputError(
            f"{record.where}: {repr(value)[:40]} is not a question about a context",
            fix='write SQuAD\'s JSON, or rows {"id", "question", "context", "answers"}',
        )
    name = value.get("id")
    where = record.where if name is None else f"{record.where}: question {name}"
    passage = as_text(context, where)
    return QuestionExample(
        question=as_text(value["question"], where),
        context=passage,
        answers=_answers(value, passage, where),
        origin=record.origin(name),
    )


def _answers(value: Mapping[str, Any], context: str, where: str) -> tuple[Answer, ...] | None:
    given = value.get("answers")
    if given is None:
        return () if value.get("is_impossible") else None
    found = [_answer(*pair, context, where) for pair in _pairs(given, where)]
    if found and value.get("is_impossible"):
        raise InputError(
            f"{where}: it is said to be impossible, and has answers",
            fix="take out the answers, or is_impossible",
        )
    return tuple(sorted(found, key=lambda answer: answer.start == NOT_IN_CONTEXT))


def _pairs(given: object, where: str) -> list[tuple[object, object]]:
    """Texts and their starts, from a list of answers or from two lists."""
    match given:
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
        case list() if all(isinstance(answer, Mapping) for answer in given):
            return [(answer.get("text"), answer.get("answer_start")) for answer in given]
    raise InputError(
        f"{where}: {repr(given)[:40]} are no answers",
        fix='write [{"text": …, "answer_start": …}, …]',
    )


def _answer(text: object, start: object, context: str, where: str) -> Answer:
    clean = as_text(text, where)
    if not isinstance(start, int) or not clean:
        raise InputError(
            f"{where}: the answer {clean[:40]!r} begins at {repr(start)[:40]}",
            fix="give a text that is not empty and the number of its first character, from 0",
        )
    if context.startswith(clean, start) and start >= 0:
        return Answer(text=clean, start=start)
    places = _places(clean, context)
    if places:
        return Answer(text=clean, start=min(places, key=lambda place: abs(place - start)))
    if start == NOT_IN_CONTEXT:
        return Answer(text=clean, start=NOT_IN_CONTEXT)
    raise InputError(
        f"{where}: the answer {clean[:40]!r} does not stand in the context",
        fix="repair it, or leave the question out",
    )


def _places(text: str, context: str) -> Sequence[int]:
    places = [context.find(text)]
    while places[-1] >= 0:
        places.append(context.find(text, places[-1] + 1))
    return places[:-1]
