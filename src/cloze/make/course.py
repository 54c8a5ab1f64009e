"""A run that is judged as it goes and keeps its best model: what all such makers share."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import isnan, nan
from pathlib import Path
from typing import Any

from cloze.config import to_mapping
from cloze.files import sound
from cloze.make.recipe.run import CHANGEABLE, SelectingRun
from cloze.make.run import METRICS, STATE, Logged, Watch
from cloze.objectives.core import Batch
from cloze.train.budget import Budget, Progress
from cloze.train.consumers import (
    early_stopping,
    evaluating,
    saving,
    writing_metrics,
    writing_tensorboard,
)
from cloze.train.loop import run
from cloze.train.run_files import append_metrics
from cloze.train.schedule import Schedule
from cloze.train.signals import stop_on_signals
from cloze.train.state import TrainState, resume, save
from cloze.train.step import Step
from cloze.train.step_metrics import Meter, eval_row

Steps = Iterator[Step]


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a run goes."""

    out: Path
    identity: Mapping[str, Any]  # what must be the same for a run to be resumed
    budget: Budget
    schedule: Schedule
    options: SelectingRun
    watch: Watch
    every: int = 1  # steps from one judgement to the next
    judge: Callable[[], dict[str, float]] | None = None  # "score" is what chooses, higher is better
    keep: Callable[[], object]  # save the model as it is
    around: Callable[[Steps, Progress], Steps] = lambda steps, _: steps  # and where it goes on from


@dataclass(frozen=True)
class Taken:
    """How it went; the best by the judge, if there is one."""

    score: float | None
    scores: Mapping[str, float]
    best_step: int
    stopped: str | None  # the signal, where one ended it early


def take(state: TrainState, batch: Callable[[int], Batch], course: Course) -> Taken:
    """Go the course, from where the state in its folder has come to; then the best is kept."""
    resume(state, course.out / STATE, course.identity)
    since, budget = state.progress, course.budget
    best = state.notes.setdefault("best", {"score": None, "step": 0, "scores": {}})
    if best["step"]:  # a saved state has no word for what is no number
        best["score"] = _number(best["score"])
        best["scores"] = {name: _number(value) for name, value in best["scores"].items()}

    def saved() -> object:
        return save(state, course.out / STATE, course.identity, keep=1)

    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        steps = run(
            state,
            lambda first: ([batch(number)] for number in count(first)),
            budget=budget,
            schedule=course.schedule,
            stop=stop,
        )
        steps = course.around(steps, since)
        if course.judge is not None:
            steps = evaluating(steps, course.judge, every=course.every)
            steps = keeping_best(steps, best, course.keep)
            if course.options.patience:
                steps = early_stopping(
                    steps,
                    state.notes,
                    score="score",
                    patience=course.options.patience,
                    better="higher",
                )
        steps = saving(
            steps, saved, every=course.options.save_every, minutes=course.options.save_minutes
        )
        meter = partial(Meter, budget, 1.0, since)  # each measures the speed between its own rows
        steps = written(steps, course.out, course.options, meter, after=since.step)
        ended = deque(course.watch.steps(steps, meter()), maxlen=1)
    unjudged = bool(ended) and not ended[0].scores and budget.spent(state.progress)
    if course.judge is not None and unjudged:
        # a budget of minutes shows only afterwards which step was the last
        last = replace(ended[0], scores=course.judge())
        deque(keeping_best(iter([last]), best, course.keep), maxlen=0)
        append_metrics(course.out / METRICS, eval_row(last.number, last.scores))
        saved()
    if best["score"] is None:  # nothing to choose by: the last one
        course.keep()
    return Taken(
        score=best["score"],
        scores=best["scores"],
        best_step=best["step"] or state.progress.step,
        stopped=stop.reason,
    )


def keeping_best(steps: Steps, best: dict[str, Any], keep: Callable[[], object]) -> Steps:
    """Keep the model of the best evaluation so far; `best` is saved with the state."""
    for step in steps:
        if step.scores and _better(step.scores["score"], best["score"]):
            scores = {name: value for name, value in step.scores.items() if name != "score"}
            best.update(score=step.scores["score"], step=step.number, scores=scores)
            keep()
        yield step


def written(
    steps: Steps, out: Path, options: Logged, meter: Callable[[], Meter], *, after: int
) -> Steps:
    """The steps, with their numbers going to the files that people look at."""
    every = options.log_every
    steps = writing_metrics(steps, out / METRICS, rows=meter().rows, every=every, after=after)
    if options.tensorboard:
        board = out / "tensorboard"
        steps = writing_tensorboard(steps, board, rows=meter().rows, every=every, after=after)
    return steps


def exact(recipe: Any, *sources: str) -> dict[str, Any]:  # noqa: ANN401 (any recipe)
    """What of a recipe must be the same for a run to go on exactly; the data have their own.

    `sources` are the settings that name the data, such as "data.train".
    """
    described = to_mapping(recipe)
    for path in (*CHANGEABLE, *sources):
        table, _, name = path.rpartition(".")
        (described.get(table, {}) if table else described).pop(name, None)
    exactly: dict[str, Any] = sound(described)  # no clipping is infinity, which JSON cannot say
    return exactly


def _number(value: float | None) -> float:
    return nan if value is None else value


def _better(new: float, old: float | None) -> bool:
    return old is None or isnan(old) or new > old
