"""`cloze vocabulary`: learn a tokenizer from running text."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import (
    Force,
    Json,
    Quiet,
    SkipBad,
    Skipped,
    TextColumn,
    progress,
)
from cloze.cli.format import print_json, print_table


class Kind(StrEnum):
    """What the pieces are."""

    wordpiece = "wordpiece"
    bpe = "bpe"
    word = "word"
    char = "char"


def vocabulary(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT", help="Files, folders or globs of text; - is standard input."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to save it.")],
    kind: Annotated[
        Kind, typer.Option(metavar="KIND", help="wordpiece, bpe, word or char.")
    ] = Kind.wordpiece,
    size: Annotated[
        int, typer.Option(metavar="N", help="Pieces, special tokens included.")
    ] = 30_000,
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="Default: bpe and char cased, others not."),
    ] = None,
    strip_accents: Annotated[
        bool | None,
        typer.Option("--strip-accents/--keep-accents", help="Default: as --cased/--uncased."),
    ] = None,
    chinese: Annotated[
        bool,
        typer.Option("--chinese/--no-chinese", help="Every ideograph is a word of its own."),
    ] = True,
    byte_fallback: Annotated[
        bool, typer.Option("--byte-fallback", help="Spell rare characters in bytes, not [UNK].")
    ] = False,
    min_count: Annotated[int, typer.Option(metavar="N", help="Leave out what is rarer.")] = 2,
    column: TextColumn = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a vocabulary from text.

    Reads txt, jsonl, csv, tsv and parquet, each also packed as gz, xz, bz2 or zst.
    """
    from cloze.make.vocabulary import vocabulary

    skipped = Skipped()
    with progress(quiet) as show:
        tokenizer = vocabulary(
            inputs,
            out=out,
            kind=kind,
            size=size,
            lowercase=None if cased is None else not cased,
            strip_accents=strip_accents,
            chinese=chinese,
            byte_fallback=byte_fallback,
            min_count=min_count,
            column=column,
            on_error=skipped if skip_bad else "raise",
            force=force,
            progress=show,
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
