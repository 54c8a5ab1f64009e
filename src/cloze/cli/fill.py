"""`cloze fill`: words for [MASK]."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Column,
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Quiet,
    Texts,
    print_json,
    print_table,
    texts_from,
)

if TYPE_CHECKING:
    from cloze.tasks.fill import Filled


def fill(
    model: ModelFolder,
    texts: Texts = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Words for each blank.")] = 5,
    candidates: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Score only these words, separated by commas."),
    ] = None,
    files: Files = None,
    column: Column = None,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fill each [MASK] of a text with the likeliest words."""
    inputs = texts_from(texts, files, column)

    from cloze.checkpoint.load import load
    from cloze.tasks.fill import fill

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    words = None if candidates is None else [word.strip() for word in candidates.split(",")]
    for row in inputs:
        filled = fill(opened, row.text, top=top, candidates=words)
        if as_json:
            print_json(dataclasses.asdict(filled))
        else:
            _show(filled)


def _show(filled: "Filled") -> None:
    for number, blank in enumerate(filled.blanks, 1):
        place = f" (blank {number} of {len(filled.blanks)})" if len(filled.blanks) > 1 else ""
        rows = [(guess.word, f"{guess.score:.4f}", guess.text) for guess in blank.guesses]
        print_table(("word", "probability", "text"), rows, title=filled.text + place)
