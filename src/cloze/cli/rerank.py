"""`cloze rerank`: order documents by how well they fit a query."""

from typing import Annotated, Literal

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
    Truncation,
    progress,
    read_inputs,
)
from cloze.cli.format import print_json
from cloze.cli.format_vectors import print_rerank


def rerank(
    model: ModelFolder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Query.")],
    documents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOCUMENT", help="Documents; - reads standard input, one document per line."
        ),
    ] = None,
    *,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of documents to print (default: all)."),
    ] = None,
    by: Annotated[
        Literal["pairs", "embeddings"] | None,
        typer.Option(
            metavar="METHOD",
            help="pairs (the model reads the query with each document) or embeddings (default: "
            "pairs if the model is a classifier or regression model of texts).",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Label of a pair that fits, whose probability is the score (default: "
            "auto-detected, such as 1, yes or relevant).",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With embeddings: how a text becomes a vector: cls, mean or max (default: the "
            "model's setting, else mean).",
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
    """Order documents by how well they fit a query."""
    given = [row.text for row in read_inputs(documents, files, text_column)]

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.rerank import rerank

    with progress(quiet) as show:
        result = rerank(
            opened,
            query,
            given,
            top=top,
            by=by,
            label=label,
            pooling=pooling,
            truncation=truncation,
            overlap=overlap,
            progress=show,
        )
    (print_json if as_json else print_rerank)(result.to_dict())
