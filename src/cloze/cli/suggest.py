"""`cloze suggest`: what may come next."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Column,
    Device,
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
    from cloze.tasks.suggest import Suggested, Suggestion

WIDTH = 20  # of the longest bar


def suggest(
    model: ModelFolder,
    texts: Texts = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Words for each text.")] = 10,
    files: Files = None,
    column: Column = None,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Suggest the next words of a text, with their probabilities."""
    inputs = texts_from(texts, files, column)

    from cloze.checkpoint.families import load
    from cloze.tasks.suggest import suggest

    opened = load(model, device=device, quiet=quiet)
    for row in inputs:
        suggested = suggest(opened, row.text, top=top)
        if as_json:
            print_json(dataclasses.asdict(suggested))
        else:
            _show(suggested)


def _show(suggested: "Suggested") -> None:
    found = suggested.suggestions
    paths = any(one.path for one in found)
    bars = sys.stdout.isatty()  # other programs draw their own
    most = max((one.probability for one in found), default=1.0)
    columns = ["word", "probability", *[""] * bars, *["order", "how"] * paths]
    rows = [
        [
            one.word,
            f"{one.probability:.4f}",
            *[_bar(one.probability / most)] * bars,
            *[one.order, _how(one)][: 2 * paths],
        ]
        for one in found
    ]
    print_table(columns, rows, title=f"{suggested.text} …")


def _bar(share: float) -> str:
    """In eighths of a character, so that small differences show."""
    eighths = round(share * WIDTH * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _how(one: "Suggestion") -> str:
    """The back-off weights, then what was said: γ(thou shalt) 0.31 × p(· | shalt) 0.52."""
    *passed, last = one.path
    weights = [f"γ({' '.join(asked.context)}) {asked.weight:.3g}" for asked in passed]
    given = f" | {' '.join(last.context)}" if last.context else ""
    return " × ".join([*weights, f"p(·{given}) {last.weight:.3g}"])
