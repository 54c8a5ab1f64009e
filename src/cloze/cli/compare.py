"""`cloze compare`: several models on the same data."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Force,
    Json,
    LabelColumn,
    PairColumn,
    Policy,
    Quiet,
    Scheme,
    Seed,
    SkipBad,
    Skipped,
    Stride,
    TagColumn,
    TextColumn,
    format_cell,
    print_json,
    print_table,
    progress,
)
from cloze.cli.evaluate import Bleu, Chinese, Report, check_report

FRAME = 3  # columns around a cell: a line, and a space on both sides


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL… DATA",
            help="Models; then data: labels, scored pairs, text, word questions; of translators "
            "SRC TGT.",
        ),
    ],
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="The data, or more of them; then all else are models."),
    ] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    tag_column: TagColumn = None,
    scheme: Scheme = None,
    resamples: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Draws of the bootstrap. [1000]")
    ] = None,
    report: Report = None,
    truncation: Policy = None,
    overlap: Stride = None,
    chinese: Chinese = None,
    bleu: Bleu = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare models on the same data, with intervals that say how sure a difference is.

    p is two-sided, by the bootstrap: below 0.05 a model differs from the first, up or down.
    """
    if len(models) == 1 and not data:
        raise typer.BadParameter("name models, then the data", param_hint="MODEL… DATA")

    from cloze.metrics.names import metric_label
    from cloze.tasks.compare import compare

    folders, files = (models, data) if data else _apart(models)
    check_report(report, force)
    with progress(quiet) as show:
        made = compare(
            folders,
            files,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            tag_column=tag_column,
            scheme=scheme,
            truncation=truncation,
            overlap=overlap,
            chinese=chinese,
            bleu=bleu,
            skip_bad=skip_bad,
            resamples=resamples,
            seed=seed,
            device=device,
            dtype=dtype,
            progress=show,
        )
    skipped = Skipped()
    for error in made.skipped:
        skipped(error)
    skipped.tell()
    if report is not None:
        names = ", ".join(Path(file).name for file in files)
        made.save(report, title=f"{len(made.entries)} models on {names}")
    if as_json:
        print_json(made.to_dict())
        return
    columns = [metric_label(column) for column in made.columns]
    _print(columns, [["" if cell is None else cell for cell in row] for row in made.rows()])
    if not quiet:
        typer.echo(made.note, err=True)


def _print(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """One table; on a terminal too narrow for it, one to a model."""
    if not sys.stdout.isatty() or _fits(columns, rows):
        print_table(columns, rows)
        return
    for row in rows:
        told = [pair for pair in zip(columns[1:], row[1:], strict=True) if pair[1] != ""]
        print_table((columns[0], str(row[0])), told)


def _fits(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
    """Whether every cell has its room, with a frame around it."""
    from rich.cells import cell_len
    from rich.console import Console

    across = zip(columns, *rows, strict=True)
    widths = (max(cell_len(format_cell(cell)) for cell in column) + FRAME for column in across)
    return sum(widths) + 1 <= Console().width


def _apart(names: list[str]) -> tuple[list[str], list[str]]:
    """Models, and the data: the last name, and those before it that are files and no models."""
    from cloze.checkpoint.load import find_file_family
    from cloze.checkpoint.word2vec import begins_vectors
    from cloze.data.sources import is_stream

    def is_data(name: str) -> bool:
        if is_stream(name):
            return True
        family = find_file_family(name)
        is_model = family is not None and (family.name != "word2vec" or begins_vectors(name))
        return Path(name).is_file() and not is_model

    first = len(names) - 1
    while first > 1 and is_data(names[first - 1]):
        first -= 1
    return names[:first], names[first:]
