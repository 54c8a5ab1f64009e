"""`cloze database`: build a database of chunks for a RETRO."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import (
    Device,
    Force,
    Json,
    ModelFolder,
    Quiet,
    SkipBad,
    TextColumn,
    explain_interrupt,
)
from cloze.cli.format import print_json, print_table


def database(
    model: ModelFolder,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="Files, folders or globs of text."),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the database.")],
    key_encoder: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Model that computes the keys, the mean of its token vectors: a folder, a "
            'built-in model or "org/name" (default cloze-en).',
        ),
    ] = "cloze-en",
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of processes that prepare the text (default: one per core).",
        ),
    ] = None,
    force: Force = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build a database of text that a RETRO retrieves from.

    If it is interrupted, the same command continues with the parts that are complete.
    """
    from cloze.checkpoint.load import load
    from cloze.make.build_database import build_database

    opened = load(model, device=device, quiet=quiet)
    with explain_interrupt(lambda: "interrupted: the same command continues"):
        found = build_database(
            opened,
            texts,
            out,
            encoder=key_encoder,
            text_column=text_column,
            skip_bad=skip_bad,
            workers=workers,
            force=force,
            progress=not quiet,
        )
    if as_json:
        print_json(found.to_dict())
    else:
        print_table(("database", ""), found.to_dict().items())
