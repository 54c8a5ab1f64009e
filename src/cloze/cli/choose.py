"""`cloze choose`: which option goes best with a text."""

import dataclasses
from typing import Annotated

import typer

from cloze.cli.common import Device, Dtype, Json, ModelFolder, Quiet, print_json, print_table


def choose(
    model: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    options: Annotated[list[str], typer.Argument(metavar="OPTION…", help="Two or more.")],
    *,
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A question about the text.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="Too long a text: head, tail, head+tail.")
    ] = None,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose the option that goes best with a text."""
    if not options[1:]:
        raise typer.BadParameter("there is only one to choose from", param_hint="OPTION")

    from cloze.checkpoint.load import load
    from cloze.tasks.choose import choose

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    chosen = choose(opened, text, options, question=question, policy=policy)
    if as_json:
        print_json(dataclasses.asdict(chosen))
        return
    order = sorted(range(len(options)), key=lambda n: -chosen.scores[n])
    rows = [(n + 1, options[n], f"{chosen.scores[n]:.4f}") for n in order]
    print_table(("", "option", "probability"), rows)
