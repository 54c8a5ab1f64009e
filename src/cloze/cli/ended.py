"""How a run ended, for every command that makes a model or goes on with a run."""

from typing import TYPE_CHECKING, Any

import typer

from cloze.cli.format import print_json, print_table
from cloze.metrics.names import METRICS
from cloze.plot.format import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloze.train.fit import RunResult


def print_end(ended: "RunResult", as_json: bool, verb: str = "pretrain") -> None:
    """The scores of a run, and how to go on with one that was stopped.

    Such a command fails as if the signal had ended it, so that what a script does next is not done
    with half a model.
    """
    from cloze.train.fit import exit_status

    if as_json:
        print_json(ended.to_dict())
    elif ended.task is None:
        _print_pretraining(ended, verb)
    elif ended.task == "translate":
        _translator(ended)
    else:
        _finetuned(ended)
    if ended.stopped:
        raise typer.Exit(exit_status(ended.stopped))


def _print_pretraining(ended: "RunResult", verb: str) -> None:
    rows: list[tuple[str, object]] = [
        *([("steps", ended.steps), ("tokens", ended.tokens)] if ended.steps else []),
        ("time", format_duration(ended.seconds)),
        *_scores(ended.scores),
    ]
    if ended.steps:
        rows.append(("report", str(ended.folder / "report.html")))
    print_table(("trained", str(ended.folder)), rows)
    _again(ended, verb)


def _scores(found: "Mapping[str, float]") -> "Iterator[tuple[str, str]]":
    """What is worth telling at the end, then what only this kind of model has."""
    for key, measure in METRICS.items():
        if key in found and measure.result:
            yield measure.result, measure.format(found[key])
    for name, value in found.items():
        if name not in METRICS:
            yield name, f"{value:,.0f}"


def _translator(ended: "RunResult") -> None:
    rows: list[tuple[str, Any]] = [
        *((name, f"{value:.4f}") for name, value in ended.scores.items()),
        _kept(ended),
        ("steps", ended.steps),
        ("pairs left out", ended.left_out),
        ("time", format_duration(ended.seconds)),
        ("report", str(ended.folder / "report.html")),
    ]
    print_table(("trained", str(ended.folder)), rows)
    _again(ended, "finetune")


def _finetuned(ended: "RunResult") -> None:
    if ended.trials:
        rows = [
            (
                t.name,
                *(
                    f"{t.settings[key]:g}" if t.settings[key] else ""
                    for key in ("lr", "batch_size", "epochs")
                ),
                f"{t.score:.4f}",
                format_duration(t.seconds),
            )
            for t in ended.trials
        ]
        print_table(("trial", "lr", "batch", "epochs", ended.metric or "score", "time"), rows)
    rows_: list[tuple[str, Any]] = [
        *((name, f"{value:.4f}") for name, value in ended.scores.items()),
        _kept(ended),
        ("steps", ended.steps),
        ("time", format_duration(ended.seconds)),
        ("report", str(ended.folder / "report.html")),
    ]
    if ended.score_std is not None:
        which = "finished" if ended.stopped else "all"
        rows_.insert(
            0, (f"{ended.metric}, {which} seeds", f"{ended.mean_score:.4f} ± {ended.score_std:.4f}")
        )
    print_table(("fine-tuned", str(ended.folder)), rows_)
    done = "" if ended.trials is None else f" after {len(ended.trials)} of {ended.num_trials} runs"
    _again(ended, "finetune", done)


def _kept(ended: "RunResult") -> tuple[str, Any]:
    """Which of the models that a run went through its folder holds."""
    if ended.score is None:
        return "kept", "the last, as nothing was held out"
    return "best after step", ended.best_step


def _again(ended: "RunResult", verb: str, done: str = "") -> None:
    if ended.stopped:
        again = f"cloze {verb} --resume --out {ended.folder}"
        typer.echo(f"stopped by {ended.stopped}{done} and saved; to go on: {again}", err=True)
