"""`cloze index`: make documents searchable."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cloze.cli.common import (
    INPUT,
    Device,
    Dtype,
    Force,
    Json,
    Quiet,
    SkipBad,
    Skipped,
    TextColumn,
    print_note,
    progress,
)
from cloze.cli.format import print_json
from cloze.cli.processing import OUTPUT, Address, Workers


def index(
    documents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOCUMENTS",
            help="Files, folders or globs (txt, md, html, pdf, jsonl, json, csv, tsv, parquet); - "
            "reads standard input. With a CLIP as model: images, folders, tar files, or tables "
            "with a column of images.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the index.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Model folder, name of a built-in model, or org/name (default: that of the index "
            "with --update, else cloze-en).",
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Add to an existing index; documents with a known id are replaced, and unchanged "
            "ones are skipped.",
        ),
    ] = False,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Delete this document from an existing index; may be repeated."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Where vectors and texts are stored: lancedb, exact, or "
            "postgresql://USER@HOST/DATABASE (default: lancedb if it is installed, else exact).",
        ),
    ] = None,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Maximum number of tokens of a chunk (default: 200)."
        ),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Maximum number of tokens of whole sentences that two chunks share (default: 40).",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=INPUT,
            help="Column of the ids: name or 1-based number (default: auto-detected, else file and "
            "line).",
        ),
    ] = None,
    title_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            rich_help_panel=INPUT,
            help="Column of the titles: name or 1-based number (default: auto-detected).",
        ),
    ] = None,
    text_column: TextColumn = None,
    unit: Annotated[
        Literal["file", "section", "line"] | None,
        typer.Option(
            metavar="UNIT",
            rich_help_panel=INPUT,
            help="What a document of plain text is: file, section (between blank lines) or line "
            "(default: file; of standard input line).",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(
            metavar="NAME",
            rich_help_panel=OUTPUT,
            help="Where documents are split and embedded: local, in this process, or ray, by "
            "workers that each hold the model. This process writes the index.",
        ),
    ] = "local",
    address: Address = None,
    workers: Workers = None,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make documents searchable with `cloze search`: build an index, or change one."""
    if not documents and not delete:
        raise typer.BadParameter("name files, a folder or -", param_hint="DOCUMENTS")

    from cloze.tasks.index import find_index_model, index

    found: Any = find_index_model(model, out, force=force) if documents else None
    if found and engine == "local":
        from cloze.checkpoint.load import load

        found = load(found, device=device, dtype=dtype, quiet=quiet)
    skipped = Skipped()
    with progress(quiet) as show:
        result = index(
            found,
            documents or None,
            out,
            update=update,
            delete=delete or (),
            store=store,
            chunk_tokens=chunk_tokens,
            overlap=overlap,
            id_column=id_column,
            title_column=title_column,
            text_column=text_column,
            unit=unit,
            engine=engine,
            address=address,
            workers=workers,
            device=device,
            dtype=dtype,
            force=force,
            progress=show,
            on_error=skipped if skip_bad else "raise",
        )
    skipped.print_count()
    if as_json:
        print_json(result.to_dict())
    elif not quiet:
        counts = (result.added, result.updated, result.unchanged, result.deleted)
        names = ("added", "updated", "unchanged", "deleted")
        changes = ", ".join(f"{n:,} {name}" for n, name in zip(counts, names, strict=True) if n)
        print_note(
            f"{result.num_documents:,} documents in {result.num_chunks:,} chunks "
            f"({changes or 'no change'}): {out}"
        )
    if result.left_out and not quiet:
        kinds = ", ".join(f"{name or 'no ending'} {n:,}" for name, n in result.left_out.items())
        print_note(f"{sum(result.left_out.values()):,} files of other types were left out: {kinds}")
