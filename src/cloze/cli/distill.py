"""`cloze distill`: a model to one with half its layers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import Column, Device, Force, Json, Quiet
from cloze.cli.ended import print_end
from cloze.cli.training import (
    Accumulate,
    BatchTokens,
    CorpusFolder,
    Epochs,
    Length,
    Minutes,
    Precision,
    Rate,
    RunSeed,
    SaveEvery,
    Settings,
    Sources,
    Steps,
    Tensorboard,
    Tokens,
    Workers,
    for_resuming,
    given,
    nested,
    watching,
)

if TYPE_CHECKING:
    from cloze.train.fit import RunResult


def distill(
    teacher: Annotated[
        str | None,
        typer.Argument(metavar="TEACHER", help='A model folder, a built-in model, or "org/name".'),
    ] = None,
    inputs: Sources = None,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The run's and the student's folder.")
    ],
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Of the student; unsaid, half the teacher's.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="distilbert; bert keeps BERT's shape; modernbert. [by teacher]"
        ),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Of the guesses compared; unsaid, 2.")
    ] = None,
    minutes: Minutes = None,
    steps: Steps = None,
    tokens: Tokens = None,
    epochs: Epochs = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="distill (default), or a file.")
    ] = None,
    length: Length = None,
    batch_tokens: BatchTokens = None,
    accumulate: Accumulate = None,
    rate: Rate = None,
    dtype: Precision = None,
    column: Column = None,
    corpus: CorpusFolder = None,
    settings: Settings = None,
    save_every: SaveEvery = None,
    workers: Workers = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out; name a TEACHER that moved."),
    ] = False,
    tensorboard: Tensorboard = None,
    seed: RunSeed = None,
    force: Force = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Teach a student with half a model's layers what the model knows, on raw text."""
    flags = given(
        {
            "distill.teacher": teacher,
            "distill.layers": layers,
            "distill.family": family,
            "distill.temperature": temperature,
            "run.minutes": minutes,
            "run.steps": steps,
            "run.tokens": tokens,
            "run.epochs": epochs,
            "run.seed": seed,
            "run.dtype": dtype,
            "run.save_every": save_every,
            "run.device": device,
            "run.tensorboard": tensorboard,
            "corpus.column": column,
            "corpus.folder": corpus,
            "corpus.workers": workers,
            "samples.length": length,
            "batch.tokens": batch_tokens,
            "batch.per_step": accumulate,
            "optimizer.lr": rate,
        }
    )
    if not resume and teacher is None:
        raise typer.BadParameter("no model to learn from: name its folder", param_hint="TEACHER")

    from cloze.make.distill.job import DEFAULT, distill
    from cloze.make.pretrain.recipe import recipe as make_recipe
    from cloze.make.resume import resume as go_on

    ended: RunResult
    with watching(str(out), quiet=quiet, display=not as_json) as callbacks:
        if resume:
            changed = for_resuming(flags, settings, recipe, may="distill.teacher")
            ended = go_on(out, sources=inputs or [], settings=changed, callbacks=callbacks)
        else:
            assert teacher is not None
            texts = inputs or []
            made = make_recipe(recipe or DEFAULT, flags=nested(flags), settings=settings or [])
            if not texts and not made.corpus.sources:
                raise typer.BadParameter(
                    "no text: name files, folders or globs", param_hint="INPUT"
                )
            ended = distill(teacher, texts, out, made, force=force, callbacks=callbacks)
    print_end(ended, as_json, verb="distill")
