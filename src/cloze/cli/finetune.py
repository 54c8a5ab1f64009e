"""`cloze finetune`: a model and labelled data to a model for a task."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

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
)
from cloze.cli.ended import print_end
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
    Tensorboard,
    Tokens,
    for_resuming,
    given,
    nested,
    watching,
)

if TYPE_CHECKING:
    from cloze.train.fit import RunResult


def finetune(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="classify, tag, answer, choose, translate.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help='A model folder, a built-in model, or "org/name"; translate: one to go on from, '
            "or none.",
        ),
    ] = None,
    *,
    train: Annotated[
        list[str] | None,
        typer.Option(
            "--train", metavar="PATH", help="Data to learn from, or -; translate: SRC TGT."
        ),
    ] = None,
    dev: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="To judge by. [a tenth of --train; translate: none]"),
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
    epochs: Annotated[
        float | None, typer.Option(metavar="N", help="How often all. [3; translate: the recipe's]")
    ] = None,
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
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="finetune, features; translate: transformer(-base), seq2seq; or a file.",
        ),
    ] = None,
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
            "optimizer.lr": rate,
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
            "run.dtype": dtype,
            "run.device": device,
            "run.save_every": save_every,
            "run.tensorboard": tensorboard,
        }
    )

    from cloze.make.finetune.dispatch import complete
    from cloze.make.resume import resume as go_on

    ended: RunResult
    with watching(str(out), quiet=quiet, display=not as_json) as callbacks:
        if resume:
            changed = for_resuming(flags, settings, task, model, train, dev, recipe)
            ended = go_on(out, settings=changed, callbacks=callbacks)
        else:
            own = nested(_own(flags, task, recipe))
            kind, made = complete(
                recipe, task=task, model=model, flags=own, settings=settings or []
            )
            files = {"train": train or [], "dev": dev or []}
            ended = kind.make(
                task, model, out=out, recipe=made, **files, force=force, callbacks=callbacks
            )
    print_end(ended, as_json, verb="finetune")


def _own(flags: dict[str, Any], task: str | None, recipe: str | None) -> dict[str, Any]:
    """The flags as this task calls them; those it does not know are bad usage."""
    from cloze.make.finetune.dispatch import maker_for

    maker, own = maker_for(task, recipe), {}
    for setting, value in flags.items():
        path = maker.path(setting)
        if path is None:
            flag = setting.partition(".")[2].replace("_", "-")
            raise typer.BadParameter("a translator does not know it", param_hint=f"--{flag}")
        own[path] = value
    return own


class PairedFiles(TyperCommand):
    """Takes `--train SRC TGT` of a translator for two of `--train PATH`, which click knows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        if args[:1] == ["translate"]:
            said: list[str] = []
            for arg in args:
                value = arg == "-" or not arg.startswith("-")
                if said[-2:-1] and said[-2] in _PAIRED and value:
                    said.append(said[-2])
                said.append(arg)
            args = said
        return super().parse_args(ctx, args)


_PAIRED = ("--train", "--dev")
COMMAND_CLASS = PairedFiles
