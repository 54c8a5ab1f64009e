"""`cloze search`: find documents of an index."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Json,
    Quiet,
    TextColumn,
    print_note,
    progress,
    read_inputs,
)
from cloze.cli.format import print_json
from cloze.cli.format_vectors import print_search


def search(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the index (`cloze index`).")
    ],
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QUERY", help="One or more queries; - reads standard input, one per line."
        ),
    ] = None,
    *,
    k: Annotated[
        int, typer.Option("--k", "-k", min=1, metavar="N", help="Number of documents.")
    ] = 10,
    mode: Annotated[
        Literal["hybrid", "dense", "bm25"],
        typer.Option(
            metavar="MODE",
            help="dense compares vectors, bm25 compares words, hybrid merges both rankings.",
        ),
    ] = "hybrid",
    filter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='Condition on metadata, such as "year>=1990" or "lang=en"; may be repeated.',
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Model that orders the best 50 chunks again, as in `cloze rerank` "
            "(default: none).",
        ),
    ] = None,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Print several chunks of one document, each as a hit.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Folder of the index's model, if it was moved (default: recorded).",
        ),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(
            "--image",
            metavar="FILE",
            help="Find images that are similar to this one, in an index of images; may be "
            "repeated.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the results to this HTML page, with small images."
        ),
    ] = None,
    files: Files = None,
    text_column: TextColumn = None,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the documents of an index that fit a query, or images that fit a text or an image."""
    given = None
    if not image:
        given = [row.text for row in read_inputs(queries, files, text_column)]
    elif queries or files:
        raise typer.BadParameter("give either queries or --image", param_hint="--image")

    from cloze.files import expand_user
    from cloze.retrieval.folder import read_manifest

    read_manifest(expand_user(folder))  # a mistake is reported before torch is imported

    from cloze.tasks.search import open_index, search
    from cloze.tasks.search_results import save_search_page

    find: Any = search  # whose result depends on its arguments

    second = None
    if rerank is not None:
        from cloze.checkpoint.load import load

        second = load(rerank, device=device, dtype=dtype, quiet=quiet)

    with (
        progress(quiet) as show,
        open_index(folder, model=model, device=device, dtype=dtype) as opened,
    ):
        results = find(
            opened,
            given,
            k=k,
            mode=mode,
            filter=filter,
            rerank=second,
            chunks=chunks,
            images=image or None,
            thumbnails=html is not None,
            progress=show,
        )
    if html is not None:
        save_search_page(results, html)
        if not quiet:
            print_note(f"{len(results):,} results: {html}")
    for one in results:
        (print_json if as_json else print_search)(one.to_dict())
