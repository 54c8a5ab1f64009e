"""`cloze suggest`: what may come next."""

import dataclasses
import sys
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
    SkipBad,
    Skipped,
    Texts,
    print_table,
    read_inputs,
)
from cloze.cli.outcomes import format_probability, print_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloze.tasks.suggest import Suggestion, Suggestions

WIDTH = 20  # of the longest bar


def suggest(
    model: ModelFolder,
    texts: Texts = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Words for each text.")] = 10,
    files: Files = None,
    column: Column = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Suggest the next words of a text, with their probabilities."""
    skipped = Skipped()
    inputs = read_inputs(texts, files, column, on_error=skipped if skip_bad else "raise")

    from cloze.checkpoint.load import load
    from cloze.tasks.suggest import suggest

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    suggested = (suggest(opened, row.text, top=top) for row in inputs)
    if as_json:
        for one in suggested:
            listed = [dataclasses.asdict(each) for each in one.suggestions]
            print_line(
                {"text": one.text}, {"suggestions": listed, "unk_probability": one.unk_probability}
            )
    else:
        _show(list(suggested))
    skipped.tell()


def _show(suggested: "list[Suggestions]") -> None:
    """One table; of several texts it says which each word goes on from."""
    paths = any(one.backoff_path for each in suggested for one in each.suggestions)
    bars = sys.stdout.isatty()  # other programs draw their own
    columns = ["word", "probability", *[""] * bars, *["order", "how"] * paths]
    rows = [(each.text, row) for each in suggested for row in _rows(each, bars, paths)]
    if len(suggested) > 1:
        print_table(["after", *columns], [[text, *row] for text, row in rows])
    elif suggested:
        print_table(columns, [row for _, row in rows], title=f"{suggested[0].text} …")


def _rows(suggested: "Suggestions", bars: bool, paths: bool) -> "Iterator[list[object]]":
    most = max((one.probability for one in suggested.suggestions), default=1.0)
    for one in suggested.suggestions:
        yield [
            one.word,
            format_probability(one.probability),
            *([_bar(one.probability / most)] if bars else []),
            *([one.order, _how(one)] if paths else []),
        ]


def _bar(share: float) -> str:
    """In eighths of a character, so that small differences show."""
    eighths = round(share * WIDTH * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _how(one: "Suggestion") -> str:
    """The back-off weights, then what was said: γ(thou shalt) 0.31 × p(· | shalt) 0.52."""
    *passed, last = one.backoff_path
    weights = [f"γ({' '.join(asked.context)}) {asked.weight:.3g}" for asked in passed]
    given = f" | {' '.join(last.context)}" if last.context else ""
    return " × ".join([*weights, f"p(·{given}) {last.weight:.3g}"])
