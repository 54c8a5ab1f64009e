"""`cloze export`: write a model in another format."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import Force, Json, ModelFolder, Quiet, print_note
from cloze.cli.format import print_json


def export(
    format: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="word2vec (word vectors), arpa (n-gram models), allennlp (ELMo) or huggingface "
            "(encoders).",
        ),
    ],
    model: ModelFolder,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="File to write, or folder for allennlp and huggingface."
        ),
    ],
    *,
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="word2vec: write no header line, as in GloVe files."),
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a model to the file format of another library."""
    from cloze.checkpoint.load import load
    from cloze.tasks.export import check_format, export

    check_format(format, model)
    opened = load(model, device="cpu", quiet=quiet)
    written = export(format, opened, out, header=not no_header, force=force)
    if as_json:
        print_json({"format": format, "out": str(written)})
    elif not quiet:
        print_note(f"{format}: {written}")
