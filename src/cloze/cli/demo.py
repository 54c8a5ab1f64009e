"""`cloze demo`: from text to a trained model, with no download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import Device, Force, Quiet, Seed, print_table
from cloze.cli.pretrain import print_end
from cloze.cli.training import watching

if TYPE_CHECKING:
    from cloze.make.demo import Demo

FEW = 3  # words of a fill


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to save the model.")] = Path(
        "cloze-demo"
    ),
    minutes: Annotated[float, typer.Option(metavar="N", help="How long to train.")] = 2.5,
    force: Force = False,
    seed: Seed = 0,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Train a small BERT on Python's own documentation and look at it."""
    from cloze.make.demo import demo

    with watching(str(out), quiet=quiet, display=True) as watch:
        made = demo(out, minutes=minutes, seed=seed, force=force, device=device, watch=watch)
    print_end(made.trained, as_json=False)
    _show(made)
    typer.echo(f'try: cloze fill {out} "Return a new [MASK]."')


def _show(made: "Demo") -> None:
    fills = [
        (fill["text"], fill["truth"], _words(fill["before"]), _words(fill["after"]))
        for fill in made.fills
    ]
    print_table(("sentence", "was", "before", "after"), fills, title="blanks filled")
    for found in made.neighbours:
        rows = [(text, f"{cosine:.2f}") for text, cosine in found["neighbours"]]  # type: ignore[attr-defined]
        print_table((str(found["text"]), "cosine"), rows)


def _words(guesses: object) -> str:
    return ", ".join(word for word, _ in list(guesses)[:FEW])  # type: ignore[call-overload]
