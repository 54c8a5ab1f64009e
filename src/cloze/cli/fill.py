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
    read_inputs,
)
from cloze.cli.outcomes import Outcomes, format_probability, print_line
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.checkpoint.model import Model
    from cloze.data.sources import Row
    from cloze.tasks.fill import FillResult, MaskResult

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
    inputs = read_inputs(texts, files, column, on_error=told.on_error)

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
) -> "Iterator[tuple[Row, FillResult | InputError]]":
    for row in rows:
        one = _outcome(model, row, top, words)
        if told.shown(one, getattr(one, "truncated", 0)):
            yield row, one


def _plain(one: "FillResult | InputError") -> dict[str, object] | InputError:
    if isinstance(one, InputError):
        return one
    return {"masks": [dataclasses.asdict(blank) for blank in one.masks], "truncated": one.truncated}


def _outcome(
    model: "Model", row: "Row", top: int, words: list[str] | None
) -> "FillResult | InputError":
    """A blank line of a file has nothing to fill; any other text without a mask is a mistake."""
    from cloze.tasks.fill import FillResult, fill

    if row.file != ARGUMENT and not row.text.strip():
        return FillResult(text=row.text, masks=())
    try:
        return fill(model, row.text, top=top, candidates=words)
    except InputError as error:
        where = "" if row.file == ARGUMENT else f"{row.file}:{row.line}: "
        return InputError(f"{where}{error.problem}", fix=error.fix)


def _show(filled: "FillResult") -> None:
    for number, blank in enumerate(filled.masks, 1):
        place = f" (blank {number} of {len(filled.masks)})" if len(filled.masks) > 1 else ""
        print_table(COLUMNS, _rows(blank), title=filled.text + place)


def _print(found: "Iterator[FillResult | InputError]") -> None:
    """One table; of several texts or blanks it says which each word is for."""
    begin = list(islice(found, 2))
    several = len(begin) > 1 or any(len(getattr(one, "masks", ())) > 1 for one in begin)
    rows = (
        (*((one.text, number) if several else ()), *row)
        for one in chain(begin, found)
        if not isinstance(one, InputError)
        for number, blank in enumerate(one.masks, 1)
        for row in _rows(blank)
    )
    first = list(islice(rows, 1))  # what fails does so before there is a header
    if first:
        print_table((*(("source", "blank") if several else ()), *COLUMNS), chain(first, rows))


def _rows(blank: "MaskResult") -> list[tuple[str, str, str]]:
    return [
        (guess.word, format_probability(guess.score), guess.text) for guess in blank.predictions
    ]
