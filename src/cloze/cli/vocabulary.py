"""`cloze vocabulary`: train a tokenizer on text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cloze.cli.common import Force, Json, Quiet, SkipBad, Skipped, TextColumn, explain_interrupt
from cloze.cli.format import print_json, print_table


def vocabulary(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT", help="Files, folders or globs of text; - is standard input."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to save the tokenizer in.")],
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Train a tokenizer on text, and save it in a folder.

    Reads txt, jsonl, csv, tsv and parquet, also compressed (gz, xz, bz2, zst).
    """
    from cloze.make.vocabulary import vocabulary

    skipped = Skipped()
    with explain_interrupt(lambda: "interrupted: no tokenizer was saved"):
        tokenizer = vocabulary(
            inputs,
            out=out,
            text_column=text_column,
            on_error=skipped if skip_bad else "raise",
            force=force,
            progress=not quiet,
            **options,
        )
    skipped.print_count()
    summary = {
        "folder": str(out),
        "kind": tokenizer.kind,
        "size": tokenizer.vocab_size,
        "lowercase": tokenizer.lowercase,
    }
    if as_json:
        print_json(summary)
    else:
        print_table(("vocabulary", ""), summary.items())
