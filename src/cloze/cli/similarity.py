"""`cloze similarity`: the cosine of the embeddings of texts."""

from typing import Annotated

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Overlap,
    Quiet,
    TextColumn,
    Texts,
    Truncation,
    progress,
    read_inputs,
)
from cloze.cli.format import print_json
from cloze.cli.format_vectors import print_similarity


def similarity(
    model: ModelFolder,
    texts: Texts = None,
    *,
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How a text becomes a vector: cls, mean or max (default: the model's setting, "
            "else mean).",
        ),
    ] = None,
    truncation: Truncation = None,
    overlap: Overlap = None,
    files: Files = None,
    text_column: TextColumn = None,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute the cosine similarity of two texts, or of each of several with each other."""
    given = [row.text for row in read_inputs(texts, files, text_column)]
    if len(given) < 2:  # noqa: PLR2004
        raise typer.BadParameter("give two or more texts", param_hint="TEXT")

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.similarity import similarity

    text, pair = given if len(given) == 2 else (given, None)  # noqa: PLR2004
    with progress(quiet) as show:
        result = similarity(
            opened,
            text,
            pair,
            pooling=pooling,
            truncation=truncation,
            overlap=overlap,
            progress=show,
        )
    (print_json if as_json else print_similarity)(result.to_dict())
