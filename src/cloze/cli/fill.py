"""`cloze fill`: words for [MASK]."""

import dataclasses
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
    print_json,
    print_table,
    texts_from,
)
from cloze.cli.outcomes import Outcomes, chance
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.checkpoint.model import Model
    from cloze.data.streams import Row
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
    for row in inputs:
        filled = _outcome(opened, row, top, words)
        if not told.shown(filled, getattr(filled, "cut", 0)):
            continue
        if isinstance(filled, InputError):
            if as_json:
                print_json({"text": row.text, "error": filled.problem})
        elif as_json:
            print_json(dataclasses.asdict(filled))
        else:
            _show(filled)
    told.tell(f"cut to {opened.limit:,} pieces around their blanks")


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
        rows = [(guess.word, chance(guess.score), guess.text) for guess in blank.guesses]
        print_table(("word", "probability", "text"), rows, title=filled.text + place)
