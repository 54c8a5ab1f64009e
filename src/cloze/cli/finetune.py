"""`cloze finetune`: a model and labelled data to a model for a task."""

import dataclasses
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
    Tensorboard,
    Tokens,
    for_resuming,
    given,
    nested,
    watching,
)

if TYPE_CHECKING:
    from cloze.make.finetune import Finetuned
    from cloze.make.run import Watch
    from cloze.make.translate import Trained


def finetune(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="classify, tag, answer, choose, translate.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help='A model folder, a built-in model, or "org/name".'),
    ] = None,
    *,
    train: Annotated[
        list[str] | None,
        typer.Option("--train", metavar="PATH", help="Data to learn from; translate: SRC TGT."),
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
            help="finetune, features; translate: transformer, seq2seq; or a file.",
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

    if task == "translate" or (resume and _translates(out)):
        if model is not None:
            raise typer.BadParameter(
                "a translator begins from nothing; which kind: --recipe transformer or seq2seq",
                param_hint="MODEL",
            )
        with watching(str(out), quiet=quiet, display=not as_json) as watch:
            _translate(
                flags,
                out,
                files=(train, dev),
                recipe=recipe,
                settings=settings,
                resume=resume,
                force=force,
                watch=watch,
                as_json=as_json,
            )
        return

    from cloze.make.finetune import finetune, resume_finetune
    from cloze.make.finetune_recipe import DEFAULT, finetune_recipe

    with watching(str(out), quiet=quiet, display=not as_json) as watch:
        if resume:
            changed = for_resuming(flags, settings, task, train, dev, recipe)
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


class PairedFiles(TyperCommand):
    """Takes `--train SRC TGT` of a translator for two of `--train PATH`, which click knows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        if args[:1] == ["translate"]:
            said: list[str] = []
            for arg in args:
                if said[-2:-1] and said[-2] in _PAIRED and not arg.startswith("-"):
                    said.append(said[-2])
                said.append(arg)
            args = said
        return super().parse_args(ctx, args)


_PAIRED = ("--train", "--dev")


def _translates(out: Path) -> bool:
    """Whether the run in a folder is a translator's."""
    from cloze.config import read_toml
    from cloze.make.run import RECIPE

    path = out / RECIPE
    return path.is_file() and bool({"transformer", "seq2seq"} & read_toml(path).keys())


def _translate(
    flags: dict[str, Any],
    out: Path,
    *,
    files: tuple[list[str] | None, list[str] | None],
    recipe: str | None,
    settings: list[str] | None,
    resume: bool,
    force: bool,
    watch: "Watch",
    as_json: bool,
) -> None:
    from cloze.make.kinds import has_setting
    from cloze.make.translate import resume_translator, train_translator
    from cloze.make.translate_recipe import DEFAULT, TranslateRecipe, translate_recipe

    if resume:
        changed = for_resuming(flags, settings, *files, recipe)
        _print_translator(resume_translator(out, settings=changed, watch=watch), as_json)
        return
    own = {"data.limit" if path == "data.length" else path: value for path, value in flags.items()}
    for path in own:
        if not has_setting(TranslateRecipe, path):
            name = path.partition(".")[2].replace("_", "-")
            raise typer.BadParameter("a translator does not know it", param_hint=f"--{name}")
    made = translate_recipe(recipe or DEFAULT, flags=nested(own), settings=settings or [])
    train, dev = files[0] or list(made.data.train), files[1] or list(made.data.dev)
    for name, paths in (("--train", train), ("--dev", dev)):
        if len(paths) != _SIDES and (paths or name == "--train"):
            raise typer.BadParameter("name two files: SRC TGT", param_hint=name)
    ended = train_translator(
        train[0],
        train[1],
        out,
        made,
        dev=(dev[0], dev[1]) if dev else None,
        force=force,
        watch=watch,
    )
    _print_translator(ended, as_json)


_SIDES = 2


def _print_translator(ended: "Trained", as_json: bool) -> None:
    if as_json:
        print_json({**dataclasses.asdict(ended), "folder": str(ended.folder)})
        return
    judged = ended.score is not None
    rows: list[tuple[str, Any]] = [
        *((name, f"{value:.4f}") for name, value in ended.scores.items()),
        ("best after step", ended.best_step)
        if judged
        else ("kept", "the last, as nothing was held out"),
        ("steps", ended.steps),
        ("pairs left out", ended.left_out),
        ("time", f"{ended.seconds:.0f} s"),
        ("report", str(ended.folder / "report.html")),
    ]
    print_table(("trained", str(ended.folder)), rows)
    if ended.stopped:
        again = f"cloze finetune --resume --out {ended.folder}"
        typer.echo(f"stopped by {ended.stopped} and saved; to go on: {again}", err=True)


def _print_end(ended: "Finetuned", as_json: bool) -> None:
    if as_json:
        mean = {"mean": ended.mean, "deviation": ended.deviation} if ended.trials else {}
        print_json({**dataclasses.asdict(ended), **mean, "folder": str(ended.folder)})
        return
    if ended.trials:
        rows = [
            (t.name, f"{t.rate:g}", t.batch, t.epochs or "", f"{t.score:.4f}", f"{t.seconds:.0f} s")
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
        which = "finished" if ended.stopped else "all"
        rows_.insert(
            0, (f"{ended.measure}, {which} seeds", f"{ended.mean:.4f} ± {ended.deviation:.4f}")
        )
    print_table(("fine-tuned", str(ended.folder)), rows_)
    if ended.stopped:
        again = f"cloze finetune --resume --out {ended.folder}"
        done = f" after {len(ended.trials)} of {ended.runs} runs" if ended.runs > 1 else ""
        typer.echo(f"stopped by {ended.stopped}{done} and saved; to go on: {again}", err=True)
