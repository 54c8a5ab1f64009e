"""`cloze compare`: several models on the same data."""

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
    print_json,
    print_table,
    progress,
)
from cloze.cli.evaluate import Chinese, Report


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL… DATA", help="Model folders; the last is data: labelled, or text."
        ),
    ],
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="The data, or more of them; then all else are models."),
    ] = None,
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    column: TagColumn = None,
    scheme: Scheme = None,
    resamples: Annotated[
        int, typer.Option(min=1, metavar="N", help="Draws of the bootstrap.")
    ] = 1000,
    report: Report = None,
    policy: Policy = None,
    stride: Stride = None,
    chinese: Chinese = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare models on the same data, with intervals that say how sure a difference is."""
    folders, files = (models, data) if data else (models[:-1], models[-1:])
    if not folders:
        raise typer.BadParameter("name models, then the data", param_hint="MODEL… DATA")

    from cloze.data.files import fresh_path
    from cloze.tasks.compare import compare

    if report is not None:
        fresh_path(report, force)
    with progress(quiet) as show:
        made = compare(
            folders,
            files,
            text=text,
            pair=pair,
            label=label,
            column=column,
            scheme=scheme,
            policy=policy,
            stride=stride,
            chinese=chinese,
            skip_bad=skip_bad,
            resamples=resamples,
            seed=seed,
            device=device,
            dtype=dtype,
            report=show,
        )
    skipped = Skipped()
    for error in made.skipped:
        skipped(error)
    skipped.tell()
    if report is not None:
        names = ", ".join(Path(file).name for file in files)
        made.save(report, title=f"{len(made.entries)} models on {names}")
    if as_json:
        print_json(made.data)
        return
    print_table(
        made.columns, ([("" if cell is None else cell) for cell in row] for row in made.rows())
    )
    if not quiet:
        typer.echo(made.note, err=True)
