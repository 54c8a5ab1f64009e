"""`cloze glue`: a model on every task of GLUE that is there."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import Device, Force, Json, Quiet, print_json, print_table
from cloze.cli.training import (
    Batch,
    Precision,
    Rate,
    RunSeed,
    Search,
    Seeds,
    Settings,
    TaskRecipe,
    given,
    log_to_stderr,
    nested,
    shown,
)

if TYPE_CHECKING:
    from cloze.make.glue import GlueTable


def glue(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="To fine-tune; or a folder of models named like the tasks."
        ),
    ],
    *,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="With CoLA, SST-2, MRPC, …")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep each task's model in FOLDER/TASK.")
    ] = None,
    tasks: Annotated[
        str, typer.Option(metavar="A,B", help="Only these. [all that are there]")
    ] = "",
    epochs: Annotated[float | None, typer.Option(metavar="N", help="How often all. [3]")] = None,
    rate: Rate = None,
    batch: Batch = None,
    seeds: Seeds = None,
    search: Search = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the first examples of a file.")
    ] = None,
    recipe: TaskRecipe = None,
    settings: Settings = None,
    force: Force = False,
    seed: RunSeed = None,
    dtype: Precision = None,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune a model on every task of GLUE in a folder, and print the scores."""
    flags = given(
        {
            "run.epochs": epochs,
            "optimizer.lr": rate,
            "run.batch": batch,
            "run.seed": seed,
            "run.seeds": seeds,
            "run.search": search,
            "run.dtype": dtype,
            "run.device": device,
        }
    )

    from cloze.make.finetune.recipe import DEFAULT, finetune_recipe
    from cloze.make.glue import glue
    from cloze.train.fit import Callbacks
    from cloze.train.signals import exit_status

    def callbacks(task: str) -> "Callbacks":
        title = task if out is None else str(out / task)
        return Callbacks(
            log=log_to_stderr(quiet),
            steps=partial(shown, before=ExitStack(), title=title, quiet=quiet or as_json),
        )

    made = glue(
        model,
        data,
        out,
        finetune_recipe(recipe or DEFAULT, flags=nested(flags), settings=settings or []),
        tasks=[name.strip() for name in tasks.split(",") if name.strip()],
        limit=limit,
        force=force,
        callbacks=callbacks,
    )
    if as_json:
        print_json({**dataclasses.asdict(made), "score": made.score})
    else:
        columns = ("task", "metrics", "score", "±", "training", "dev", "seconds", "note")
        print_table(columns, _rows(made))
    if made.stopped:
        again = "; to go on, ask the same again" if out is not None else ""
        typer.echo(f"stopped by {made.stopped}{again}", err=True)
        raise typer.Exit(exit_status(made.stopped))


def _rows(made: "GlueTable") -> Iterator[tuple[object, ...]]:
    for row in made.rows:
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in row.metrics.items())
        counts = (n or "" for n in (row.train, row.dev))
        seconds = f"{row.seconds:.0f}" if row.seconds else ""
        yield (
            row.task,
            metrics,
            *map(_score, (row.score, row.deviation)),
            *counts,
            seconds,
            row.note,
        )
    scored = sum(row.score is not None for row in made.rows)
    yield "mean", f"of {scored} tasks", _score(made.score), "", "", "", "", ""


def _score(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"
