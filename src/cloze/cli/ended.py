"""How a run ended, for every command that makes a model or goes on with a run."""

import dataclasses
from typing import TYPE_CHECKING, Any

import typer

from cloze.cli.common import print_json, print_table
from cloze.metrics.names import MEASURES
from cloze.plot.numbers import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloze.make.finetune.encoder import Finetuned
    from cloze.make.run import Pretrained
    from cloze.make.translation.job import Trained


def print_end(
    ended: "Pretrained | Finetuned | Trained", as_json: bool, verb: str = "pretrain"
) -> None:
    """The scores of a run, and how to go on with one that was stopped.

    Such a command fails as if the signal had ended it, so that what a script does next is not done
    with half a model.
    """
    from cloze.make.finetune.encoder import Finetuned
    from cloze.make.run import Pretrained
    from cloze.train.signals import status

    if as_json:
        mean = {}
        if isinstance(ended, Finetuned) and ended.trials:
            mean = {"mean": ended.mean, "deviation": ended.deviation}
        print_json({**dataclasses.asdict(ended), **mean, "folder": str(ended.folder)})
    elif isinstance(ended, Finetuned):
        _finetuned(ended)
    elif isinstance(ended, Pretrained):
        _pretrained(ended, verb)
    else:
        _translator(ended)
    if ended.stopped:
        raise typer.Exit(status(ended.stopped))


def _pretrained(ended: "Pretrained", verb: str) -> None:
    rows: list[tuple[str, object]] = [
        *([("steps", ended.steps), ("tokens", ended.tokens)] if ended.steps else []),
        ("time", duration(ended.seconds)),
        *_scores(ended.scores),
    ]
    if ended.steps:
        rows.append(("report", str(ended.folder / "report.html")))
    print_table(("trained", str(ended.folder)), rows)
    _again(ended, verb)


def _scores(found: "Mapping[str, float]") -> "Iterator[tuple[str, str]]":
    """What is worth telling at the end, then what only this kind of model has."""
    for key, measure in MEASURES.items():
        if key in found and measure.result:
            yield measure.result, measure.write(found[key])
    for name, value in found.items():
        if name not in MEASURES:
            yield name, f"{value:,.0f}"


def _translator(ended: "Trained") -> None:
    rows: list[tuple[str, Any]] = [
        *((name, f"{value:.4f}") for name, value in ended.scores.items()),
        _kept(ended),
        ("steps", ended.steps),
        ("pairs left out", ended.left_out),
        ("time", duration(ended.seconds)),
        ("report", str(ended.folder / "report.html")),
    ]
    print_table(("trained", str(ended.folder)), rows)
    _again(ended, "finetune")


def _finetuned(ended: "Finetuned") -> None:
    if ended.trials:
        rows = [
            (t.name, f"{t.rate:g}", t.batch, t.epochs or "", f"{t.score:.4f}", duration(t.seconds))
            for t in ended.trials
        ]
        print_table(("trial", "rate", "batch", "epochs", ended.measure, "time"), rows)
    rows_: list[tuple[str, Any]] = [
        *((name, f"{value:.4f}") for name, value in ended.scores.items()),
        _kept(ended),
        ("steps", ended.steps),
        ("time", duration(ended.seconds)),
        ("report", str(ended.folder / "report.html")),
    ]
    if ended.deviation is not None:
        which = "finished" if ended.stopped else "all"
        rows_.insert(
            0, (f"{ended.measure}, {which} seeds", f"{ended.mean:.4f} ± {ended.deviation:.4f}")
        )
    print_table(("fine-tuned", str(ended.folder)), rows_)
    done = f" after {len(ended.trials)} of {ended.runs} runs" if ended.runs > 1 else ""
    _again(ended, "finetune", done)


def _kept(ended: "Finetuned | Trained") -> tuple[str, Any]:
    """Which of the models that a run went through its folder holds."""
    if ended.score is None:
        return "kept", "the last, as nothing was held out"
    return "best after step", ended.best_step


def _again(ended: "Pretrained | Finetuned | Trained", verb: str, done: str = "") -> None:
    if ended.stopped:
        again = f"cloze {verb} --resume --out {ended.folder}"
        typer.echo(f"stopped by {ended.stopped}{done} and saved; to go on: {again}", err=True)
