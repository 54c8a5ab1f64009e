"""`cloze demo`: show the built-in model, and train a small BERT; nothing is downloaded."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import Device, Force, Quiet, Seed
from cloze.cli.format import print_table
from cloze.cli.format_run import print_run_result
from cloze.cli.training import explain_interrupted_run

if TYPE_CHECKING:
    from cloze.make.demo import Demo, Neighbours, Preview, Ranked

TOP = 3  # predictions that are shown


def demo(
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder to write the run and the model to.")
    ] = Path("cloze-demo"),
    minutes: Annotated[float, typer.Option(metavar="N", help="Training time in minutes.")] = 2.5,
    force: Force = False,
    seed: Seed = 0,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Show the built-in model, then train a small BERT on the documentation of Python."""
    again = "run the same command with --force"  # the folder has been created
    with explain_interrupted_run("pretrain", restart=again) as begin:
        from cloze.make.demo import demo

        made = demo(
            out,
            minutes=minutes,
            seed=seed,
            force=force,
            device=device,
            progress=not quiet,
            callbacks=[begin],
        )
    if made.preview is not None:
        _print_preview(made.preview)
    print_run_result(made.result, as_json=False)
    _print_trained(made)
    typer.echo(f'try: cloze fill {out} "Return a new [MASK]."')


def _print_trained(made: "Demo") -> None:
    fills = [
        (fill.text, fill.truth, _join_words(fill.before), _join_words(fill.after))
        for fill in made.fills
    ]
    print_table(
        ("sentence", "original word", "before training", "after training"),
        fills,
        title="predictions for [MASK]",
    )
    _print_neighbours(made.neighbours)


def _print_preview(preview: "Preview") -> None:
    rows = [(fill.text, _join_words(fill.words)) for fill in preview.fills]
    print_table(("sentence", "words"), rows, title=f"predictions of {preview.name} for [MASK]")
    _print_neighbours(preview.neighbours)
    right = round(preview.accuracy * preview.num_dev)
    typer.echo(
        f"a classifier on its embeddings is right for {right} of {preview.num_dev} new sentences; "
        f'try: cloze classify {preview.classifier} "The boat leaves at noon."'
    )


def _print_neighbours(neighbours: "list[Neighbours]") -> None:
    for one in neighbours:
        rows = [(text, f"{cosine:.2f}") for text, cosine in one.neighbours]
        print_table((one.text, "cosine"), rows)


def _join_words(predictions: "Ranked") -> str:
    return ", ".join(word for word, _ in predictions[:TOP])
