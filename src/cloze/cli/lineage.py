"""`cloze lineage`: train the systems from n-grams to BERT on one text, and compare them."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import Device, Force, Json, Quiet, Seed, explain_interrupt, print_note
from cloze.cli.format import print_json, print_table
from cloze.cli.training import display_callbacks


def lineage(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="File, folder or glob of running text.")
    ],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="Files of labelled data: texts with labels, or words with tags (CoNLL).",
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Folder of the models, the table and the page."),
    ],
    minutes: Annotated[
        float,
        typer.Option(metavar="N", help="Minutes of pre-training of each neural model."),
    ] = 5.0,
    preset: Annotated[
        str,
        typer.Option(metavar="NAME", help="Size of the models: tiny, mini, small or medium."),
    ] = "mini",
    systems: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Comma-separated names of the systems: ngram, word2vec, lstm, elmo, gpt, bert "
            "(default: all).",
        ),
    ] = "",
    seed: Seed = 0,
    device: Device = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train n-grams, word2vec, an LSTM, ELMo, GPT and BERT on one text, and compare them."""
    import cloze
    from cloze.train.fit import exit_status

    again = "; run the same command again to continue"
    with explain_interrupt(lambda: f"interrupted{again}"):
        found = cloze.lineage(
            text,
            data,
            out,
            minutes=minutes,
            preset=preset,
            systems=[name.strip() for name in systems.split(",") if name.strip()],
            seed=seed,
            device=device,
            force=force,
            progress=False,
            callbacks=display_callbacks(quiet=quiet, show_steps=not as_json),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        print_table(found.columns, found.table_rows())
        print_note(found.note)
        print_note(f"page: {out / 'lineage.html'}")
    if found.stopped:
        print_note(f"stopped by {found.stopped}{again}")
        raise typer.Exit(exit_status(found.stopped))
