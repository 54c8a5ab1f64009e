"""`cloze fill`: words for [MASK]."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    ARGUMENT,
    Column,
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Quiet,
    SkipBad,
    Texts,
    print_table,
    texts_from,
)
from cloze.cli.outcomes import Outcomes, chance, print_line
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.checkpoint.model import Model
    from cloze.data.streams import Row
    from cloze.tasks.fill import Blank, Filled

COLUMNS = ("word", "probability", "text")


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
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fill each [MASK] of a text with the likeliest words.

    Of a text longer than the model reads it sees what is around the blanks, and that is told.
    """
    told = Outcomes("texts", skip_bad=skip_bad)
    inputs = texts_from(texts, files, column, on_error=told.on_error)

    from cloze.checkpoint.load import load
    from cloze.tasks.fill import check_fill

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    words = None if candidates is None else [word.strip() for word in candidates.split(",")]
    check_fill(opened, top=top, candidates=words)
    found = _found(opened, inputs, told, top, words)
    if as_json:
        for row, one in found:
            print_line({"text": row.text}, _plain(one))
    elif sys.stdout.isatty():
        for _, one in found:
            if not isinstance(one, InputError):
                _show(one)
    else:
        _print(one for _, one in found)
    told.tell(f"cut to {opened.limit:,} pieces around their blanks")


def _found(
    model: "Model", rows: "Iterable[Row]", told: Outcomes, top: int, words: list[str] | None
) -> "Iterator[tuple[Row, Filled | InputError]]":
    for row in rows:
        one = _outcome(model, row, top, words)
        if told.shown(one, getattr(one, "cut", 0)):
            yield row, one


def _plain(one: "Filled | InputError") -> dict[str, object] | InputError:
    if isinstance(one, InputError):
        return one
    return {"blanks": [dataclasses.asdict(blank) for blank in one.blanks], "cut": one.cut}


def _outcome(
    model: "Model", row: "Row", top: int, words: list[str] | None
) -> "Filled | InputError":
    """A blank line of a file has nothing to fill; any other text without a mask is a mistake."""
    from cloze.tasks.fill import Filled, fill

    if row.file != ARGUMENT and not row.text.strip():
        return Filled(text=row.text, blanks=())
    try:
        return fill(model, row.text, top=top, candidates=words)
    except InputError as error:
        where = "" if row.file == ARGUMENT else f"{row.file}:{row.line}: "
        return InputError(f"{where}{error.problem}", fix=error.fix)


def _show(filled: "Filled") -> None:
    for number, blank in enumerate(filled.blanks, 1):
        place = f" (blank {number} of {len(filled.blanks)})" if len(filled.blanks) > 1 else ""
        print_table(COLUMNS, _rows(blank), title=filled.text + place)


def _print(found: "Iterator[Filled | InputError]") -> None:
    """One table; of several texts or blanks it says which each word is for."""
    begin = list(islice(found, 2))
    several = len(begin) > 1 or any(len(getattr(one, "blanks", ())) > 1 for one in begin)
    rows = (
        (*((one.text, number) if several else ()), *row)
        for one in chain(begin, found)
        if not isinstance(one, InputError)
        for number, blank in enumerate(one.blanks, 1)
        for row in _rows(blank)
    )
    first = list(islice(rows, 1))  # what fails does so before there is a header
    if first:
        print_table((*(("source", "blank") if several else ()), *COLUMNS), chain(first, rows))


def _rows(blank: "Blank") -> list[tuple[str, str, str]]:
    return [(guess.word, chance(guess.score), guess.text) for guess in blank.guesses]
