"""`cloze compare`: evaluate several models on the same data."""

from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import (
    INPUT,
    Device,
    Dtype,
    Force,
    Json,
    LabelColumn,
    LabelDelimiter,
    Overlap,
    PairColumn,
    Quiet,
    Seed,
    SkipBad,
    TagColumn,
    TagScheme,
    TargetColumn,
    TextColumn,
    Truncation,
    check_page_path,
    print_note,
    print_skipped,
    progress,
)
from cloze.cli.evaluate import Bleu, Chinese, Report
from cloze.cli.format import print_json
from cloze.cli.format_evaluation import print_comparison


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... DATA",
            help="Two or more models, then the data as for `cloze evaluate`; for translators the "
            "source and the target file.",
        ),
    ],
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=INPUT,
            help="The data, if it is not the last argument; may be repeated.",
        ),
    ] = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_delimiter: LabelDelimiter = None,
    tag_column: TagColumn = None,
    tag_scheme: TagScheme = None,
    resamples: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of bootstrap resamples (default 1000)."),
    ] = None,
    report: Report = None,
    truncation: Truncation = None,
    overlap: Overlap = None,
    chinese: Chinese = None,
    bleu: Bleu = None,
    target_column: TargetColumn = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare models on the same data, with bootstrap confidence intervals.

    Each model is compared with the first one. The p-value is two-sided: below 0.05 the difference
    is unlikely to be chance.
    """
    if len(models) == 1 and not data:
        raise typer.BadParameter(
            "data are missing: give the models, then the data", param_hint="MODEL... DATA"
        )

    from cloze.tasks.compare import compare, split_models_and_data

    folders, files = (models, data) if data else split_models_and_data(models)
    check_page_path(report, force)
    with progress(quiet) as show:
        result = compare(
            folders,
            files,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            label_delimiter=label_delimiter,
            tag_column=tag_column,
            tag_scheme=tag_scheme,
            truncation=truncation,
            overlap=overlap,
            chinese=chinese,
            bleu=bleu,
            target_column=target_column,
            skip_bad=skip_bad,
            resamples=resamples,
            seed=seed,
            device=device,
            dtype=dtype,
            progress=show,
        )
    print_skipped(result.skipped)
    if report is not None:
        names = ", ".join(Path(file).name for file in files)
        result.save(report, title=f"{len(result.entries)} models on {names}")
        if not quiet:
            print_note(f"report: {report}")
    if as_json:
        print_json(result.to_dict())
        return
    print_comparison(result)
    if not quiet:
        print_note(result.note)
