"""`cloze choose`: which option goes best with a text."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Json,
    ModelFolder,
    Quiet,
    SkipBad,
    print_table,
)
from cloze.cli.outcomes import Found, Outcomes, format_probability, outcomes_of, print_lines
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.labelled.examples import ChoiceExample
    from cloze.tasks.choose import Choice


def choose(
    model: ModelFolder,
    text: Annotated[str | None, typer.Argument(metavar="TEXT")] = None,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION…", help="Two or more.")
    ] = None,
    *,
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A question about the text.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="Too long a text: head, tail, head+tail.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="PATH", help="Questions, as finetune reads them, or -."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose the option that goes best with a text."""
    if files and (text is not None or question is not None):
        raise typer.BadParameter("give a text with its options, or name a --file, not both")
    if not files and (text is None or not options):
        raise typer.BadParameter("give a text and its options, or name a file with --file")
    if options and not options[1:]:
        raise typer.BadParameter("there is only one to choose from", param_hint="OPTION")
    told = Outcomes("questions", skip_bad=skip_bad)
    examples = _questions(text, options, question, files, told)

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import with_policy
    from cloze.tasks.choose import predict
    from cloze.tasks.inference import resolve_task

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    task = with_policy(resolve_task("choose", opened), policy, None)
    verb = partial(predict, opened, task=task)
    how = f"cut to {opened.limit:,} pieces"
    with outcomes_of(verb, examples, told, cut="truncated", how=how, quiet=quiet) as found:
        if as_json:
            print_lines(found, ("text", "question", "options"), _plain)
        elif files:
            print_table(("text", "", "option", "probability"), _best(found))
        else:
            _show(found)


def _questions(
    text: str | None,
    options: list[str] | None,
    question: str | None,
    files: list[str] | None,
    told: Outcomes,
) -> "Iterator[ChoiceExample]":
    from cloze.data.labelled.choices import read_choice_examples
    from cloze.data.labelled.examples import ChoiceExample, Origin

    if text is not None and options:
        origin = Origin(line=1)
        one = ChoiceExample(text=text, options=tuple(options), question=question, origin=origin)
        return iter([one])
    examples = read_choice_examples(list(files or []), on_error=told.on_error)
    # whichever is right, it is not asked about
    return (dataclasses.replace(example, label=None) for example in examples)


def _plain(example: "ChoiceExample", chosen: "Choice") -> dict[str, object]:
    choices = [
        {"option": number, "text": text, "score": score}
        for number, text, score in _ranked(example, chosen)
    ]
    return {"choices": choices, "truncated": chosen.truncated}


def _ranked(example: "ChoiceExample", chosen: "Choice") -> list[tuple[int, str, float]]:
    """Every option with its number from 0 and its probability, best first."""
    options = zip(range(len(example.options)), example.options, chosen.scores, strict=True)
    return sorted(options, key=lambda option: -option[2])


def _show(found: Found) -> None:
    for example, chosen in found:
        if not isinstance(chosen, InputError):
            rows = [
                (n + 1, text, format_probability(score))
                for n, text, score in _ranked(example, chosen)
            ]
            print_table(("", "option", "probability"), rows)


def _best(found: Found) -> Iterator[tuple[object, ...]]:
    for example, chosen in found:
        asked = example.text if example.question is None else f"{example.text} | {example.question}"
        if isinstance(chosen, InputError):
            yield asked, "", "", ""
        else:
            yield asked, chosen.option + 1, chosen.text, format_probability(chosen.score)
