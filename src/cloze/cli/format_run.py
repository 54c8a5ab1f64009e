"""Print the result of a training run: scores, time, and how to resume it."""

import os
from typing import TYPE_CHECKING, Any

import typer

from cloze.cli.common import print_note
from cloze.cli.format import print_json, print_table
from cloze.metrics.names import METRICS, metric_label
from cloze.plot.format import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cloze.train.result import RunResult


def print_run_result(result: "RunResult", as_json: bool, command: str = "pretrain") -> None:
    """Print the scores of a run, and how to resume one that was stopped by a signal.

    A stopped run exits with the status of its signal, so that a script does not continue with an
    unfinished model. Of the processes that torchrun has started, only the first one prints.
    """
    from cloze.train.fit import exit_status

    if os.environ.get("RANK", "0") == "0":
        _print_result(result, as_json, command)
    if result.stopped:
        raise typer.Exit(exit_status(result.stopped))


def _print_result(result: "RunResult", as_json: bool, command: str) -> None:
    if as_json:
        print_json(result.to_dict())
    elif result.task is None:
        _print_pretraining(result, command)
    elif result.task in ("translate", "summarize"):
        _print_translation(result)
    else:
        _print_finetuning(result)
    if result.note and not as_json:
        print_note(result.note)


def _print_pretraining(result: "RunResult", command: str) -> None:
    rows: list[tuple[str, object]] = [
        *([("steps", result.steps), ("tokens", result.tokens)] if result.steps else []),
        ("time", format_duration(result.seconds)),
        *_score_rows(result.scores),
    ]
    if result.steps:
        rows.append(("report", str(result.folder / "report.html")))
    print_table(("trained", str(result.folder)), rows)
    _print_resume_command(result, command)


def _score_rows(found: "Mapping[str, float]") -> "Iterator[tuple[str, str]]":
    """The metrics that are reported at the end, then the counts that only this family has."""
    for key, metric in METRICS.items():
        if key in found and metric.result:
            yield metric.result, metric.format(found[key])
    for name, value in found.items():
        if name not in METRICS:
            yield name, f"{value:,.0f}"


def _print_translation(result: "RunResult") -> None:
    rows: list[tuple[str, Any]] = [
        *((metric_label(name), f"{value:.4f}") for name, value in result.scores.items()),
        _kept_model_row(result),
        ("steps", result.steps),
        ("pairs left out", result.left_out),
        ("time", format_duration(result.seconds)),
        ("report", str(result.folder / "report.html")),
    ]
    print_table(("trained", str(result.folder)), rows)
    _print_resume_command(result, "finetune")


def _print_finetuning(result: "RunResult") -> None:
    if result.trials:
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
            for t in result.trials
        ]
        metric = metric_label(result.metric or "score")
        print_table(("trial", "lr", "batch size", "epochs", metric, "time"), rows)
    summary: list[tuple[str, Any]] = [
        *((metric_label(name), f"{value:.4f}") for name, value in result.scores.items()),
        _kept_model_row(result),
        ("steps", result.steps),
        ("time", format_duration(result.seconds)),
        ("report", str(result.folder / "report.html")),
    ]
    if result.score_std is not None:
        which = "finished" if result.stopped else "all"
        name = f"{metric_label(result.metric or 'score')}, {which} seeds"
        summary.insert(0, (name, f"{result.mean_score:.4f} ± {result.score_std:.4f}"))
    print_table(("fine-tuned", str(result.folder)), summary)
    done = ""
    if result.trials is not None:
        done = f" after {len(result.trials)} of {result.num_trials} runs"
    _print_resume_command(result, "finetune", done)


def _kept_model_row(result: "RunResult") -> tuple[str, Any]:
    """The step of the model that was saved in the folder of the run."""
    if result.score is None:
        why = "it was not evaluated yet" if result.stopped else "there is no dev data to choose by"
        return "saved model", f"the last one ({why})"
    return "best step", result.best_step


def _print_resume_command(result: "RunResult", command: str, done: str = "") -> None:
    if result.stopped:
        again = f"cloze {command} --resume --out {result.folder}"
        print_note(f"stopped by {result.stopped}{done} and saved; to resume: {again}")
