"""`cloze demo`: from text to a trained model, with no download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import Device, Force, Quiet, Seed
from cloze.cli.format import print_table
from cloze.cli.format_run import print_run_result
from cloze.cli.training import show_progress

if TYPE_CHECKING:
    from cloze.make.demo import Demo, Neighbours, Preview, Ranked

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
    """See the built-in model, then train a small BERT on Python's own documentation."""
    from cloze.make.demo import demo

    with show_progress(str(out), quiet=quiet, display=True) as callbacks:
        made = demo(
            out, minutes=minutes, seed=seed, force=force, device=device, callbacks=callbacks
        )
    if made.preview is not None:
        _show_preview(made.preview)
    print_run_result(made.result, as_json=False)
    _show(made)
    typer.echo(f'try: cloze fill {out} "Return a new [MASK]."')


def _show(made: "Demo") -> None:
    fills = [
        (fill.text, fill.truth, _words(fill.before), _words(fill.after)) for fill in made.fills
    ]
    print_table(("sentence", "was", "before", "after"), fills, title="blanks filled")
    _show_neighbours(made.neighbours)


def _show_preview(seen: "Preview") -> None:
    rows = [(fill.text, _words(fill.words)) for fill in seen.fills]
    print_table(("sentence", "words"), rows, title=f"blanks filled by {seen.name}")
    _show_neighbours(seen.neighbours)
    right = round(seen.accuracy * seen.num_dev)
    typer.echo(
        f"a classifier on its vectors tells {right} of {seen.num_dev} new sentences right; "
        f'try: cloze classify {seen.classifier} "The boat leaves at noon."'
    )


def _show_neighbours(listed: "list[Neighbours]") -> None:
    for found in listed:
        rows = [(text, f"{cosine:.2f}") for text, cosine in found.neighbours]
        print_table((found.text, "cosine"), rows)


def _words(guesses: "Ranked") -> str:
    return ", ".join(word for word, _ in guesses[:FEW])
