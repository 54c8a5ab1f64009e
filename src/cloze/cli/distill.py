"""`cloze distill`: a model to one with half its layers."""

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.common import Device, Force, Json, Quiet, progress
from cloze.cli.pretrain import ANYWHERE, given, nested, print_end, say_on, shown
from cloze.errors import ConfigError


def distill(
    teacher: Annotated[
        str | None, typer.Argument(metavar="TEACHER", help='A model folder, or "org/name".')
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Files, folders or globs of text."),
    ] = None,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The run's and the student's folder.")
    ],
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Of the student; unsaid, half the teacher's.")
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="distilbert (default), or bert to keep BERT's shape."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Of the guesses compared; unsaid, 2.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(metavar="N", help="Train this long.")] = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="Or so many steps.")] = None,
    tokens: Annotated[int | None, typer.Option(metavar="N", help="Or so many tokens.")] = None,
    epochs: Annotated[float | None, typer.Option(metavar="N", help="Or so often all.")] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="distill (default), or a file.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens in a sample, at most.")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens computed at once.")
    ] = None,
    accumulate: Annotated[
        int | None, typer.Option(metavar="N", help="Batches to a step, over all processes.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="X", help="The highest learning rate.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="NAME", help="float32 or bf16 (mixed).")
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="A prepared corpus to share or reuse.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=C", help="Any setting of the recipe."),
    ] = None,
    save_every: Annotated[int | None, typer.Option(metavar="STEPS", help="Save the state.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes that prepare the text.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out; name a TEACHER that moved."),
    ] = False,
    tensorboard: Annotated[
        bool | None, typer.Option("--tensorboard", help="Write for TensorBoard, too.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of all that is random.")
    ] = None,
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
            "run.precision": dtype,
            "run.save_every": save_every,
            "run.device": device,
            "run.tensorboard": tensorboard,
            "corpus.folder": corpus,
            "corpus.workers": workers,
            "samples.length": length,
            "batch.tokens": batch_tokens,
            "batch.per_step": accumulate,
            "optimiser.rate": rate,
        }
    )
    begun = [path for path in flags if path not in ANYWHERE | {"distill.teacher"}]
    if resume and (inputs or begun or recipe or settings):
        raise ConfigError(
            "a resumed run goes on by the recipe it began with",
            fix="give --resume and --out alone, or with a TEACHER that has moved",
        )
    if not resume and teacher is None:
        raise typer.BadParameter("no model to learn from: name its folder", param_hint="TEACHER")

    from cloze.make.distill import DEFAULT, distill
    from cloze.make.pretrain import Watch, resume_run
    from cloze.make.recipe import recipe as make_recipe

    with ExitStack() as stack:
        say = say_on(stack.enter_context(progress(quiet)), quiet)
        watch = Watch(
            say=say,
            steps=partial(shown, before=stack, title=str(out), quiet=quiet or as_json),
        )
        if resume:
            changed = [f"{path}={json.dumps(value)}" for path, value in flags.items()]
            ended = resume_run(out, settings=changed, watch=watch)
        else:
            assert teacher is not None
            texts = inputs or []
            made = make_recipe(recipe or DEFAULT, flags=nested(flags), settings=settings or [])
            if not texts and not made.corpus.sources:
                raise typer.BadParameter(
                    "no text: name files, folders or globs", param_hint="INPUT"
                )
            ended = distill(teacher, texts, out, made, force=force, watch=watch)
    print_end(ended, as_json, verb="distill")
