"""`cloze answer`: extractive question answering."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    INPUT,
    ModelFolder,
    Overlap,
    SkipBad,
)
from cloze.cli.format import print_answer, print_json_lines
from cloze.cli.outcomes import Outcomes
from cloze.cli.processing import ProcessingOptions

if TYPE_CHECKING:
    from cloze.data.labelled.examples import QuestionExample


def answer(
    model: ModelFolder,
    question: Annotated[str | None, typer.Argument(metavar="QUESTION", help="Question.")] = None,
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT", help="Text that contains the answer; - reads standard input."
        ),
    ] = None,
    *,
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of answers to print per question.")
    ] = 1,
    max_answer_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum length of an answer, in tokens.")
    ] = 30,
    allow_no_answer: Annotated[
        bool | None,
        typer.Option(
            "--no-answer/--always-answer",
            help='Allow "no answer" as a result, or always return a span (default: as the model '
            "was trained).",
        ),
    ] = None,
    whole_words: Annotated[
        bool,
        typer.Option(
            "--whole-words/--no-whole-words",
            help="Extend answers to whole words, or return exactly the predicted tokens.",
        ),
    ] = True,
    truncation: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="What to do with contexts that are too long: window splits them into overlapping "
            "windows; head and tail keep that part; error rejects the context (default: the "
            "model's setting, else window).",
        ),
    ] = None,
    overlap: Overlap = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            rich_help_panel=INPUT,
            help="Read questions and contexts from a file in the SQuAD format, or from standard "
            "input (-); may be repeated.",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    processing: ProcessingOptions,
) -> None:
    """Answer a question with a span of a context (extractive question answering)."""
    if (question is None or context is None) == (not files):
        raise typer.BadParameter(
            "give a question and a context, or name a file with --file", param_hint="QUESTION"
        )
    outcomes = Outcomes("questions", skip_bad=skip_bad)
    read = partial(_read_questions, question, context, files)
    options: dict[str, Any] = {
        "top": top,
        "max_answer_tokens": max_answer_tokens,
        "allow_no_answer": allow_no_answer,
        "whole_words": whole_words,
    }
    written = {**options, "truncation": truncation, "overlap": overlap}
    if processing.write_files("answer", model, read, outcomes, written):
        return
    examples = read(on_error=outcomes.on_error)

    from cloze.checkpoint.task import override_truncation

    opened = processing.load_model(model)

    from cloze.tasks.answer import predict
    from cloze.tasks.inference import resolve_task

    answer_all = partial(
        predict,
        opened,
        task=override_truncation(resolve_task("answer", opened), truncation, overlap),
        **options,
    )
    how = "truncated, or their contexts were"
    fields = ["question", "context"]
    with outcomes.predict(answer_all, examples, fields, how=how, quiet=processing.quiet) as results:
        (print_json_lines if processing.as_json else print_answer)(results)


def _read_questions(
    question: str | None,
    context: str | None,
    files: list[str] | None,
    *,
    on_error: Any,  # noqa: ANN401
) -> "Iterator[QuestionExample]":
    from cloze.data.labelled.examples import Origin, QuestionExample
    from cloze.data.labelled.questions import read_question_examples
    from cloze.data.sources import read_rows
    from cloze.tasks.inputs import check_contexts

    if question is not None and context is not None:
        text = "\n".join(row.text for row in read_rows("-")) if context == "-" else context
        check_contexts(question, text)
        origin = Origin(file="QUESTION", line=1)
        return iter([QuestionExample(question=question, context=text, origin=origin)])
    examples = read_question_examples(list(files or []), on_error=on_error)
    return (replace(example, answers=None) for example in examples)  # they are not used
