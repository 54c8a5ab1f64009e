"""`cloze glue`: fine-tune a model on the tasks of GLUE."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import Force, Json, Quiet, explain_interrupt, print_note
from cloze.cli.format import print_json, print_table
from cloze.cli.training import Settings, display_callbacks, report_usage
from cloze.metrics.names import METRICS

if TYPE_CHECKING:
    from cloze.make.glue import GlueTable


def glue(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Model to fine-tune, or a folder of fine-tuned models, named like the tasks, that "
            "are only scored.",
        ),
    ],
    *,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder that contains the folders CoLA, SST-2, MRPC, …"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save the model of each task in FOLDER/TASK (default: models are deleted).",
        ),
    ] = None,
    tasks: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Comma-separated names of the tasks to train (default: all in --data).",
        ),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Use only the first N examples of each file (default: all)."
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Recipe: finetune, features (a classifier on a frozen encoder), or a TOML file "
            "(default finetune).",
        ),
    ] = None,
    settings: Settings = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the table in --out, as the same command without it does.",
        ),
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Fine-tune a model on every task of GLUE in a folder, and print the scores."""
    from cloze.make.recipe.complete import complete_finetuning

    if resume and (out is None or not out.is_dir()):
        raise typer.BadParameter("there is no table to continue", param_hint="--out")
    with report_usage():
        made = complete_finetuning(
            recipe, task="classify", options=options, settings=settings or []
        )
    import cloze
    from cloze.train.fit import exit_status

    again = "; run the same command again to continue" if out is not None else ""
    with explain_interrupt(lambda: f"interrupted{again}"):
        table = cloze.glue(
            model,
            data,
            out,
            made,
            tasks=[name.strip() for name in tasks.split(",") if name.strip()],
            limit=limit,
            force=force,
            progress=False,
            callbacks=display_callbacks(quiet=quiet, show_steps=not as_json),
        )
    if as_json:
        print_json(table.to_dict())
    else:
        columns = (
            "task",
            "metrics",
            "score",
            "±",
            "baseline",
            "training",
            "dev",
            "seconds",
            "note",
        )
        print_table(columns, _rows(table))
    if table.stopped:
        print_note(f"stopped by {table.stopped}{again}")
        raise typer.Exit(exit_status(table.stopped))


def _rows(table: "GlueTable") -> Iterator[tuple[object, ...]]:
    for row in table.rows:
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in row.metrics.items())
        baseline = ", ".join(METRICS[name].describe(row.baseline[name]) for name in row.baseline)
        counts = (n or "" for n in (row.train, row.dev))
        seconds = f"{row.seconds:.0f}" if row.seconds else ""
        yield (
            row.task,
            metrics,
            *map(_score, (row.score, row.score_std)),
            baseline,
            *counts,
            seconds,
            row.note,
        )
    scored = sum(row.score is not None for row in table.rows)
    yield "mean", f"of {scored} tasks", _score(table.score), "", "", "", "", "", ""


def _score(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"
