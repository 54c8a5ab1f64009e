"""`cloze demo`: all of it on text that every Python carries, with no download."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import Force, Quiet, Seed, print_table, progress
from cloze.cli.info import info


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to save the model.")] = Path(
        "cloze-demo"
    ),
    force: Force = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Learn a vocabulary, make a small BERT, save, open and embed."""
    from cloze.make.demo import demo

    with progress(quiet) as show:
        tell = (lambda _: None) if quiet else (lambda text: typer.echo(text, err=True))
        made = demo(out, force=force, seed=seed, progress=show, tell=tell)
    info(str(made.folder))
    numbers = range(1, len(made.sentences) + 1)
    likeness = made.vectors @ made.vectors.T
    rows = [
        (n, sentence, *(f"{x:.2f}" for x in row))
        for n, sentence, row in zip(numbers, made.sentences, likeness, strict=True)
    ]
    print_table(("", "sentence", *map(str, numbers)), rows, title="cosine similarity (untrained)")
    typer.echo(f'try: cloze embed {made.folder} "Read the file." --pooling none')
