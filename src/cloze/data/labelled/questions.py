"""Questions about a context: SQuAD's JSON, 1.1 and 2.0, and the flat rows of data sets.

CMRC 2018 and XQuAD have the format of SQuAD. A flat row is `{"id", "question", "context",
"answers": {"text": […], "answer_start": […]}}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from cloze.data.labelled.examples import Answer, QuestionExample
from cloze.data.labelled.records import JSON_FORMATS, DataInput, Record, read_inputs, read_records
from cloze.data.readers import parse_text
from cloze.data.sources import OnError, Source
from cloze.errors import InputError

NOT_IN_CONTEXT = -1  # as `answer_start`: a correct answer that is not in the context


def read_question_examples(
    sources: Source | list[Source], *, on_error: OnError = "raise"
) -> Iterator[QuestionExample]:
    """Read the questions of all sources lazily, in order.

    An answer that is not at its `answer_start` is moved to its nearest occurrence; an answer that
    does not occur is an error, unless its `answer_start` is -1: CMRC 2018 has such answers in
    addition to others; they count in scoring, come last, and their `start` stays -1. A question
    with an empty list of answers is unanswerable; without a list, the answers are unknown. In a
    file that is one JSON value, `line` is the number of the question.
    """
    return read_inputs(sources, JSON_FORMATS, _read_input, on_error, "answer")


def _read_input(part: DataInput) -> Iterator[QuestionExample | InputError]:
    number = count(1)
    for record in read_records(part, JSON_FORMATS):
        if isinstance(record, InputError):
            yield record
            continue
        is_nested = isinstance(record.value, Mapping) and "question" not in record.value
        for context, question in _iterate_questions(record.value):
            try:
                line = next(number) if is_nested else record.line
                yield _parse_example(context, record._replace(value=question, line=line))
            except InputError as error:
                yield error


def _iterate_questions(value: object) -> Iterator[tuple[object, object]]:
    """The questions of an article, a paragraph or a row, each with its context."""
    match value:
        case {"paragraphs": list(paragraphs)}:
            for paragraph in paragraphs:
                yield from _iterate_questions(paragraph)
        case {"context": context, "qas": list(questions)}:
            for question in questions:
                yield context, question
        case {"context": context}:
            yield context, value
        case _:
            yield None, value


def _parse_example(context: object, record: Record) -> QuestionExample:
    value = record.value
    if context is None or not isinstance(value, Mapping) or "question" not in value:
        raise InputError(
            f"{record.where}: {repr(value)[:40]} is not a question with a context",
            fix='write SQuAD\'s JSON, or rows {"id", "question", "context", "answers"}',
        )
    name = value.get("id")
    where = record.where if name is None else f"{record.where}: question {name}"
    passage = parse_text(context, where)
    return QuestionExample(
        question=parse_text(value["question"], where),
        context=passage,
        answers=_parse_answers(value, passage, where),
        origin=record.make_origin(name),
    )


def _parse_answers(value: Mapping[str, Any], context: str, where: str) -> tuple[Answer, ...] | None:
    answers = value.get("answers")
    if answers is None:
        return () if value.get("is_impossible") else None
    found = [
        _parse_answer(*pair, context, where) for pair in _pair_texts_with_starts(answers, where)
    ]
    if found and value.get("is_impossible"):
        raise InputError(
            f"{where}: is_impossible is true, but there are answers",
            fix="remove the answers or is_impossible",
        )
    return tuple(sorted(found, key=lambda answer: answer.start == NOT_IN_CONTEXT))


def _pair_texts_with_starts(answers: object, where: str) -> list[tuple[object, object]]:
    """Texts and their start positions, from a list of answers or from two lists."""
    match answers:
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
        case list() if all(isinstance(answer, Mapping) for answer in answers):
            return [(answer.get("text"), answer.get("answer_start")) for answer in answers]
    raise InputError(
        f"{where}: {repr(answers)[:40]} is not a list of answers",
        fix='write [{"text": …, "answer_start": …}, …]',
    )


def _parse_answer(text: object, start: object, context: str, where: str) -> Answer:
    clean = parse_text(text, where)
    if not isinstance(start, int) or not clean:
        raise InputError(
            f"{where}: the answer {clean[:40]!r} with answer_start {repr(start)[:40]} is invalid",
            fix="use a non-empty text and the index of its first character, from 0",
        )
    if context.startswith(clean, start) and start >= 0:
        return Answer(text=clean, start=start)
    positions = _find_occurrences(clean, context)
    if positions:
        return Answer(text=clean, start=min(positions, key=lambda position: abs(position - start)))
    if start == NOT_IN_CONTEXT:
        return Answer(text=clean, start=NOT_IN_CONTEXT)
    raise InputError(
        f"{where}: the answer {clean[:40]!r} does not occur in the context",
        fix="fix it, or leave the question out",
    )


def _find_occurrences(text: str, context: str) -> Sequence[int]:
    positions = [context.find(text)]
    while positions[-1] >= 0:
        positions.append(context.find(text, positions[-1] + 1))
    return positions[:-1]
