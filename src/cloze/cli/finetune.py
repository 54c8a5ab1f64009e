"""`cloze finetune`: a model and labelled data to a model for a task."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Force,
    Json,
    LabelColumn,
    PairColumn,
    Policy,
    Quiet,
    Scheme,
    Stride,
    TagColumn,
    TextColumn,
    print_json,
    print_table,
)
from cloze.cli.training import (
    Batch,
    Precision,
    Rate,
    Resume,
    RunSeed,
    SaveEvery,
    Search,
    Seeds,
    Settings,
    Steps,
    TaskRecipe,
    Tensorboard,
    Tokens,
    for_resuming,
    given,
    nested,
    watching,
)

if TYPE_CHECKING:
    from cloze.make.finetune import Finetuned


def finetune(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="classify, tag, answer or choose.")
    ] = None,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help='A model folder, or "org/name".')
    ] = None,
    *,
    train: Annotated[
        list[str] | None,
        typer.Option("--train", metavar="PATH", help="Labelled data to learn from."),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="To judge by. [a tenth of the training data]"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The run's and the model's folder.")],
    text: TextColumn = None,
    pair: PairColumn = None,
    label: LabelColumn = None,
    number: Annotated[
        bool | None, typer.Option("--number/--classes", help="What labels are. [found]")
    ] = None,
    column: TagColumn = None,
    scheme: Scheme = None,
    transfer: Annotated[
        str | None, typer.Option(metavar="KIND", help="full, last-N, head or features.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="Features: one of the six, or numbers.")
    ] = None,
    pooling: Annotated[
        str | None, typer.Option(metavar="CHOICE", help="Features of texts: cls, mean, max.")
    ] = None,
    layer_decay: Annotated[
        float | None, typer.Option(metavar="X", help="Rate of a layer, of the one above it.")
    ] = None,
    unfreeze: Annotated[
        float | None, typer.Option(metavar="EPOCHS", help="From one layer's thaw to the next.")
    ] = None,
    rate: Rate = None,
    batch: Batch = None,
    epochs: Annotated[float | None, typer.Option(metavar="N", help="How often all. [3]")] = None,
    steps: Steps = None,
    tokens: Tokens = None,
    minutes: Annotated[float | None, typer.Option(metavar="N", help="Or this long.")] = None,
    class_weights: Annotated[
        str | None, typer.Option(metavar="KIND", help="balanced: rare classes weigh more.")
    ] = None,
    smoothing: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Of the labels, to all classes.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(metavar="N", help="End after N evaluations without a better one.")
    ] = None,
    length: Annotated[int | None, typer.Option(metavar="N", help="Tokens, at most.")] = None,
    policy: Policy = None,
    stride: Stride = None,
    context: Annotated[
        bool | None, typer.Option("--context", help="Tags: read the neighbouring sentences too.")
    ] = None,
    seeds: Seeds = None,
    search: Search = None,
    recipe: TaskRecipe = None,
    settings: Settings = None,
    skip_bad: Annotated[
        bool | None, typer.Option("--skip-bad", help="Pass over rows that cannot be read.")
    ] = None,
    save_every: SaveEvery = None,
    resume: Resume = False,
    tensorboard: Tensorboard = None,
    seed: RunSeed = None,
    dtype: Precision = None,
    force: Force = False,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Teach a model a task from labelled data."""
    flags = given(
        {
            "data.text": text,
            "data.pair": pair,
            "data.label": label,
            "data.number": number,
            "data.column": column,
            "data.scheme": scheme,
            "data.skip_bad": skip_bad,
            "data.length": length,
            "data.policy": policy,
            "data.stride": stride,
            "data.context": context,
            "transfer.kind": transfer,
            "transfer.layers": layers,
            "transfer.pooling": pooling,
            "transfer.layer_decay": layer_decay,
            "transfer.unfreeze": unfreeze,
            "optimiser.rate": rate,
            "loss.class_weights": class_weights,
            "loss.smoothing": smoothing,
            "run.batch": batch,
            "run.epochs": epochs,
            "run.steps": steps,
            "run.tokens": tokens,
            "run.minutes": minutes,
            "run.patience": patience,
            "run.seed": seed,
            "run.seeds": seeds,
            "run.search": search,
            "run.precision": dtype,
            "run.device": device,
            "run.save_every": save_every,
            "run.tensorboard": tensorboard,
        }
    )

    from cloze.make.finetune import finetune, resume_finetune
    from cloze.make.finetune_recipe import DEFAULT, finetune_recipe

    with watching(str(out), quiet=quiet, display=not as_json) as watch:
        if resume:
            changed = for_resuming(flags, task, train, dev, recipe, settings)
            ended = resume_finetune(out, settings=changed, watch=watch)
        else:
            default = "features" if transfer == "features" else DEFAULT
            made = finetune_recipe(recipe or default, flags=nested(flags), settings=settings or [])
            name, base = task or made.task, model or made.model
            files = train or list(made.data.train)
            if not files or not base:
                missing = "labelled data: --train PATH" if base else "model: TASK MODEL"
                raise typer.BadParameter(f"no {missing}")
            ended = finetune(
                name,
                base,
                files,
                out,
                made,
                dev=dev or list(made.data.dev),
                force=force,
                watch=watch,
            )
    _print_end(ended, as_json)


def _print_end(ended: "Finetuned", as_json: bool) -> None:
    if as_json:
        mean = {"mean": ended.mean, "deviation": ended.deviation} if ended.trials else {}
        print_json({**dataclasses.asdict(ended), **mean, "folder": str(ended.folder)})
        return
    if ended.trials:
        rows = [
            (t.name, f"{t.rate:g}", t.batch, t.epochs, f"{t.score:.4f}", f"{t.seconds:.0f} s")
            for t in ended.trials
        ]
        print_table(("trial", "rate", "batch", "epochs", ended.measure, "time"), rows)
    rows_: list[tuple[str, Any]] = [
        *((name, f"{value:.4f}") for name, value in ended.scores.items()),
        ("best after step", ended.best_step),
        ("steps", ended.steps),
        ("time", f"{ended.seconds:.0f} s"),
        ("report", str(ended.folder / "report.html")),
    ]
    if ended.deviation is not None:
        rows_.insert(
            0, (f"{ended.measure}, all seeds", f"{ended.mean:.4f} ± {ended.deviation:.4f}")
        )
    print_table(("fine-tuned", str(ended.folder)), rows_)
    if ended.stopped:
        again = f"cloze finetune --resume --out {ended.folder}"
        typer.echo(f"stopped by {ended.stopped} and saved; to go on: {again}", err=True)
