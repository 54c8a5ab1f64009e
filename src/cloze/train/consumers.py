"""Step consumers: generators over the training steps, which compose.

    steps = training_steps(state, data, budget=budget, schedule=schedule, stop=stop)
    steps = evaluate_steps(steps, evaluate, every=1000)
    steps = stop_early(steps, state.notes, score="eval.mlm")
    steps = save_steps(steps, lambda: save_training_state(state, folder, fingerprint), every=500)
    steps = write_metrics(steps, out / "metrics.jsonl", rows=rows, after=state.progress.step)
    for step in steps: ...

A consumer that ends the run ends the iteration, and the consumers around it then finish: so those
that decide when to stop come first, those that save and write come last.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from cloze.config import one_of, suggest
from cloze.errors import ConfigError
from cloze.train.guard import BadStepError
from cloze.train.run_files import metrics_line, truncate_metrics
from cloze.train.step import Step

Rows: TypeAlias = Callable[[Step], Iterable[Mapping[str, Any]]]  # the rows of metrics of a step

SECONDS = 60
BETTER: dict[str, Callable[[float, float], bool]] = {
    "lower": lambda new, old: new < old,
    "higher": lambda new, old: new > old,
}


def evaluate_steps(
    steps: Iterable[Step], evaluate: Callable[[], Mapping[str, float]], *, every: int
) -> Iterator[Step]:
    """Evaluate every `every` steps and when the budget is spent, and add the scores to the step.

    With several processes each one evaluates, and all must get the same scores.
    """
    for step in steps:
        due = step.number % every == 0 or step.is_last
        yield replace(step, scores=evaluate()) if due else step


def stop_early(
    steps: Iterable[Step],
    notes: dict[str, Any],
    *,
    score: str,
    patience: int = 3,
    better: str = "lower",
) -> Iterator[Step]:
    """End after `patience` evaluations in a row without a better score.

    Its state is kept in `notes`, which are saved with the training state.
    """
    improves = BETTER[one_of("better", better, BETTER)]
    memory = notes.setdefault("early_stopping", {"best": None, "step": None, "since": 0})
    for step in steps:
        if step.scores:
            if score not in step.scores:
                raise ConfigError(
                    f"the evaluation has no score {score!r} for early stopping",
                    fix=suggest(score, step.scores),
                )
            new, old = step.scores[score], memory["best"]
            if math.isfinite(new) and (old is None or improves(new, old)):
                memory.update(best=new, step=step.number, since=0)
            else:
                memory["since"] += 1
        yield step
        if memory["since"] >= patience:
            return


def save_steps(
    steps: Iterable[Step],
    save: Callable[[], object],
    *,
    every: int | None = None,
    minutes: float | None = None,
) -> Iterator[Step]:
    """Save every `every` steps or `minutes` minutes, and at the end, whatever ended the run.

    After a bad step, the state of the step before is saved. After any other error nothing is saved:
    the last saved state remains.
    """
    last = saved = None
    clock: float | None = None
    try:
        for step in steps:
            last = step.number
            clock = step.seconds if clock is None else clock
            late = minutes is not None and step.seconds - clock >= SECONDS * minutes
            if late or (every is not None and step.number % every == 0):
                save()
                saved, clock = step.number, step.seconds
            yield step
    except BadStepError:
        save()
        raise
    if last != saved:
        save()


def emit_rows(
    steps: Iterable[Step],
    emit: Callable[[Mapping[str, Any]], object],
    *,
    rows: Rows,
    every: int = 1,
) -> Iterator[Step]:
    """Emit the rows of every `every`-th step, of each evaluated step, and of the last one.

    A row is emitted once its numbers have arrived from the device, without waiting for them; at the
    end, whatever ended the run, the remaining ones are waited for.
    """
    waiting: deque[Step] = deque()
    unlogged: Step | None = None  # the last step, if it was not due

    def emit_arrived(*, wait: bool) -> None:
        while waiting and (wait or waiting[0].is_ready):
            for row in rows(waiting.popleft()):
                emit(row)

    try:
        for step in steps:
            unlogged = step
            if step.scores or step.number % every == 0:
                waiting.append(step)
                unlogged = None
            emit_arrived(wait=False)
            yield step
    finally:
        if unlogged is not None:
            waiting.append(unlogged)
        emit_arrived(wait=True)


def write_metrics(
    steps: Iterable[Step], path: Path, *, rows: Rows, every: int = 1, after: int = 0
) -> Iterator[Step]:
    """Append one JSON object per line: every `every` steps, for each evaluation, and at the end.

    `after` is the step at which a run starts or resumes: rows of later steps, which are now
    repeated, are removed first.
    """
    truncate_metrics(path, after)
    with path.open("a", encoding="utf-8", buffering=1) as file:  # each line is on disk at once
        yield from emit_rows(
            steps, lambda row: file.write(metrics_line(row)), rows=rows, every=every
        )
