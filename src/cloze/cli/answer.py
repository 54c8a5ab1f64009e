"""`cloze answer`: the stretch of a context that answers a question."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Json,
    ModelFolder,
    Policy,
    Quiet,
    SkipBad,
    Stride,
    print_table,
)
from cloze.cli.outcomes import Found, Outcomes, format_probability, outcomes_of, print_lines
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.labelled.examples import QuestionExample
    from cloze.tasks.answer import AnswerResult

NOTHING = "(the context does not tell)"


def answer(
    model: ModelFolder,
    question: Annotated[str | None, typer.Argument(metavar="QUESTION")] = None,
    context: Annotated[
        str | None, typer.Argument(metavar="CONTEXT", help="- reads standard input.")
    ] = None,
    *,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Answers to each question.")] = 1,
    longest: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens that an answer may have.")
    ] = 30,
    none: Annotated[
        bool | None,
        typer.Option(
            "--none/--no-none",
            help="Whether there may be no answer; unsaid, if the model learned it.",
        ),
    ] = None,
    whole_words: Annotated[
        bool,
        typer.Option(
            "--whole-words/--no-whole-words",
            help="Widen answers to whole words, or leave them as the tokens chosen.",
        ),
    ] = True,
    policy: Policy = None,
    stride: Stride = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="PATH", help="Questions in the SQuAD format, or -."),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answer a question by a stretch of a context."""
    if (question is None or context is None) == (not files):
        raise typer.BadParameter(
            "give a question and a context, or name a file with --file", param_hint="QUESTION"
        )
    told = Outcomes("questions", skip_bad=skip_bad)
    examples = _questions(question, context, files, told)

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import with_policy
    from cloze.tasks.answer import predict
    from cloze.tasks.inference import resolve_task

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    task = with_policy(resolve_task("answer", opened), policy, stride)
    verb = partial(
        predict,
        opened,
        task=task,
        top=top,
        max_answer_tokens=longest,
        allow_no_answer=none,
        whole_words=whole_words,
    )
    how = "cut, or their contexts were"
    with outcomes_of(verb, examples, told, cut="truncated", how=how, quiet=quiet) as found:
        if as_json:
            print_lines(found, ("question", "context"), lambda _, one: _plain(one))
        else:
            print_table(("question", "answer", "probability", "start", "end"), _rows(found))


def _questions(
    question: str | None, context: str | None, files: list[str] | None, told: Outcomes
) -> "Iterator[QuestionExample]":
    from cloze.data.labelled.examples import Origin, QuestionExample
    from cloze.data.sources import read_rows

    if question is not None and context is not None:
        text = "\n".join(row.text for row in read_rows("-")) if context == "-" else context
        origin = Origin(file="QUESTION", line=1)
        return iter([QuestionExample(question=question, context=text, origin=origin)])
    from cloze.data.labelled.questions import read_question_examples

    examples = read_question_examples(list(files or []), on_error=told.on_error)
    # whatever the answers are, they are not asked about
    return (replace(example, answers=None) for example in examples)


def _plain(found: "AnswerResult") -> dict[str, object]:
    return {"answers": [asdict(one) for one in found.candidates], "truncated": found.truncated}


def _rows(found: Found) -> Iterator[tuple[object, ...]]:
    for example, answered in found:
        if isinstance(answered, InputError):
            yield example.question, "", "", "", ""
            continue
        for one in answered.candidates:
            text = one.text or NOTHING
            yield example.question, text, format_probability(one.probability), one.start, one.end
