"""`cloze tokenize`: what a tokenizer makes of texts."""

import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Column,
    Files,
    Json,
    SkipBad,
    Skipped,
    Texts,
    print_table,
    read_inputs,
)
from cloze.cli.outcomes import print_line

if TYPE_CHECKING:
    from cloze.text.alignment import TokenAlignment

COLUMNS = ("piece", "id", "characters", "word", "type")


def tokenize(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder, a tokenizer.json or a vocab.txt.")
    ],
    texts: Texts = None,
    *,
    pair: Annotated[str | None, typer.Option(help="A second text, paired with each.")] = None,
    files: Files = None,
    column: Column = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Show the pieces of texts: ids, characters and words."""
    skipped = Skipped()
    inputs = read_inputs(texts, files, column, on_error=skipped if skip_bad else "raise")

    from cloze.tasks.tokenize import open_tokenizer, tokenize

    tokenizer = open_tokenizer(model)
    found = ((row.text, tokenize(tokenizer, row.text, pair)) for row in inputs)
    if as_json:
        for text, encoding in found:
            print_line({"text": text, "pair": pair}, _plain(encoding))
    elif sys.stdout.isatty():
        for text, encoding in found:
            print_table(COLUMNS, _rows(encoding), title=text)
    else:
        _print(encoding for _, encoding in found)
    skipped.tell()


def _plain(encoding: "TokenAlignment") -> dict[str, object]:
    return {
        "ids": encoding.ids,
        "tokens": encoding.tokens,
        "offsets": encoding.offsets,
        "words": encoding.words,
        "type_ids": encoding.type_ids,
    }


def _print(found: "Iterator[TokenAlignment]") -> None:
    """One table; of several texts it says by number, for they can be long, whose each piece is."""
    begin = list(islice(found, 2))
    rows = (
        (number, *row)
        for number, encoding in enumerate(chain(begin, found), 1)
        for row in _rows(encoding)
    )
    if len(begin) > 1:
        print_table(("text", *COLUMNS), rows)
    elif begin:
        print_table(COLUMNS, (row[1:] for row in rows))


def _rows(encoding: "TokenAlignment") -> Iterator[tuple[object, ...]]:
    return (
        (piece, str(number), *(("", "") if word is None else (f"{start}–{end}", word)), kind)
        for piece, number, (start, end), word, kind in zip(
            encoding.tokens,
            encoding.ids,
            encoding.offsets,
            encoding.words,
            encoding.type_ids,
            strict=True,
        )
    )
