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
            help="word2vec (word vectors), arpa (n-gram models), allennlp (ELMo), huggingface or "
            "onnx (encoders).",
        ),
    ],
    model: ModelFolder,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="File to write, or folder for allennlp, huggingface and onnx."
        ),
    ],
    *,
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="word2vec: write no header line, as in GloVe files."),
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="onnx: outputs for embed, fill, classify, tag, answer or choose (default: that of "
            "the model).",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="onnx: float32 or int8 (default float32)."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a model to the file format of another library."""
    from cloze.checkpoint.load import load
    from cloze.tasks.export import check_format, export

    check_format(format, model)
    opened = load(model, device="cpu", quiet=quiet)
    written = export(format, opened, out, header=not no_header, task=task, dtype=dtype, force=force)
    if as_json:
        print_json({"format": format, "out": str(written)})
    elif not quiet:
        print_note(f"{format}: {written}")
