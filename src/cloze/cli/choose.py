"""`cloze choose`: choose the option that fits a text best."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import INPUT, Device, Dtype, Json, ModelFolder, Quiet, SkipBad
from cloze.cli.format import print_choose, print_json_lines
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from cloze.data.labelled.examples import ChoiceExample


def choose(
    model: ModelFolder,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Text, such as the beginning of a story.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION", help="Two or more options.")
    ] = None,
    *,
    question: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Question about the text that the options answer."),
    ] = None,
    truncation: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="What to do with texts that are too long: head, tail or head+tail keep that "
            "part; error rejects the text (default: the model's setting, else head).",
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="PATH",
            rich_help_panel=INPUT,
            help="Read texts with options from a file (the formats of `cloze finetune choose`), or "
            "from standard input (-); may be repeated.",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose the option that fits a text best (multiple choice)."""
    if files and (text is not None or question is not None):
        raise typer.BadParameter("a text and --file cannot be combined: give one of them")
    if not files and (text is None or not options):
        raise typer.BadParameter("give a text and its options, or name a file with --file")
    if options and not options[1:]:
        raise typer.BadParameter("there is only one option: give two or more", param_hint="OPTION")
    outcomes = Outcomes("questions", skip_bad=skip_bad)
    examples = _read_questions(text, options, question, files, outcomes)

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import override_truncation

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.choose import predict
    from cloze.tasks.inference import resolve_task

    task = override_truncation(resolve_task("choose", opened), truncation, None)
    choose_all = partial(predict, opened, task=task)
    show = partial(print_choose, ranked=not files)
    how = f"truncated to {opened.max_length:,} tokens"
    fields = ["text", "question", "options"]
    with outcomes.predict(choose_all, examples, fields, how=how, quiet=quiet) as results:
        (print_json_lines if as_json else show)(results)


def _read_questions(
    text: str | None,
    options: list[str] | None,
    question: str | None,
    files: list[str] | None,
    outcomes: Outcomes,
) -> "Iterator[ChoiceExample]":
    from cloze.data.labelled.choices import read_choice_examples
    from cloze.data.labelled.examples import ChoiceExample, Origin

    if text is not None and options:
        origin = Origin(line=1)
        one = ChoiceExample(text=text, options=tuple(options), question=question, origin=origin)
        return iter([one])
    examples = read_choice_examples(list(files or []), on_error=outcomes.on_error)
    return (replace(example, label=None) for example in examples)  # it is not used
