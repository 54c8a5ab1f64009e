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
    print_json,
    print_table,
)
from cloze.cli.outcomes import Found, Outcomes, chance, outcomes_of, print_json_of
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.labelled.examples import ChoiceExample
    from cloze.tasks.choose import Chosen


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
    examples = _questions(files, told) if files else iter(())

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import with_policy
    from cloze.tasks.choose import choose, predict
    from cloze.tasks.scoring import task_for

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    how = f"cut to {opened.limit:,} pieces"
    if text is not None and options:
        chosen = choose(opened, text, options, question=question, policy=policy)
        told.shown(chosen, chosen.cut)
        _show(chosen, options, as_json)
        told.tell(how)
        return
    task = with_policy(task_for("choose", opened), policy, None)
    verb = partial(predict, opened, task=task)
    with outcomes_of(verb, examples, told, cut="cut", how=how, quiet=quiet) as found:
        if as_json:
            print_json_of(found, dataclasses.asdict)
        else:
            print_table(("text", "", "option", "probability"), _best(found))


def _questions(files: list[str], told: Outcomes) -> "Iterator[ChoiceExample]":
    from cloze.data.labelled.choices import read_choices

    examples = read_choices(list(files), on_error=told.on_error)
    # whichever is right, it is not asked about
    return (dataclasses.replace(example, label=None) for example in examples)


def _show(chosen: "Chosen", options: list[str], as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(chosen))
        return
    order = sorted(range(len(options)), key=lambda n: -chosen.scores[n])
    rows = [(n + 1, options[n], chance(chosen.scores[n])) for n in order]
    print_table(("", "option", "probability"), rows)


def _best(found: Found) -> Iterator[tuple[object, ...]]:
    for example, chosen in found:
        asked = example.text if example.question is None else f"{example.text} | {example.question}"
        if isinstance(chosen, InputError):
            yield asked, "", "", ""
        else:
            yield asked, chosen.option + 1, chosen.text, chance(chosen.score)
