"""`cloze tokenize`: what a tokenizer makes of texts."""

from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Column,
    Files,
    Json,
    SkipBad,
    Skipped,
    Texts,
    print_json,
    print_table,
    texts_from,
)

if TYPE_CHECKING:
    from cloze.text.encoding import Encoding


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
    inputs = texts_from(texts, files, column, on_error=skipped if skip_bad else "raise")

    from cloze.tasks.tokenize import tokenize, tokenizer_of

    tokenizer = tokenizer_of(model)
    for row in inputs:
        encoding = tokenize(tokenizer, row.text, pair)
        if as_json:
            print_json(_plain(encoding))
        else:
            _show(encoding, row.text)
    skipped.tell()


def _plain(encoding: "Encoding") -> dict[str, object]:
    return {
        "ids": encoding.ids,
        "pieces": encoding.pieces,
        "offsets": encoding.offsets,
        "words": encoding.words,
        "type_ids": encoding.type_ids,
    }


def _show(encoding: "Encoding", text: str) -> None:
    rows = (
        (piece, str(number), *(("", "") if word is None else (f"{start}–{end}", word)), kind)
        for piece, number, (start, end), word, kind in zip(
            encoding.pieces,
            encoding.ids,
            encoding.offsets,
            encoding.words,
            encoding.type_ids,
            strict=True,
        )
    )
    print_table(("piece", "id", "characters", "word", "type"), rows, title=text)
