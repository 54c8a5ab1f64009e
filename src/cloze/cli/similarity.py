"""`cloze similarity`: the cosine of the embeddings of texts."""

from typing import Annotated, Any

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
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="PATH",
            help="With a CLIP: compare the texts with this image, or with the images of this "
            "folder; may be repeated.",
        ),
    ] = None,
    files: Files = None,
    text_column: TextColumn = None,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute the cosine similarity of two texts, of several with each other, or with images."""
    given = [row.text for row in read_inputs(texts, files, text_column)]
    if len(given) < 2 and not image:  # noqa: PLR2004
        raise typer.BadParameter("give two or more texts", param_hint="TEXT")

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.similarity import similarity

    compare: Any = similarity  # whose result depends on its arguments
    text, pair = given if len(given) == 2 and not image else (given, None)  # noqa: PLR2004
    with progress(quiet) as show:
        result = compare(
            opened,
            text,
            pair,
            images=image or None,
            pooling=pooling,
            truncation=truncation,
            overlap=overlap,
            progress=show,
        )
    (print_json if as_json else print_similarity)(result.to_dict())
