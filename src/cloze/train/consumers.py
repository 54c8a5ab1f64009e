"""What happens around the steps: each consumer is a generator over them, so they compose.

    steps = run(state, data, budget=budget, schedule=schedule, stop=stop)
    steps = evaluating(steps, evaluate, every=1000)
    steps = early_stopping(steps, state.notes, score="eval.mlm")
    steps = saving(steps, lambda: save(state, folder, recipe), every=500)
    steps = writing_metrics(steps, out / "metrics.jsonl", rows=rows, after=state.progress.step)
    for step in steps: ...

A consumer that ends the run ends the iteration, and those around it then close their books: so
what decides when to stop stands inside, what saves and writes stands outside.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from cloze.config import one_of, suggest
from cloze.errors import ConfigError, MissingExtraError
from cloze.train.guard import BadStepError
from cloze.train.run_files import metrics_line, truncate_metrics
from cloze.train.step import Step

Rows: TypeAlias = Callable[[Step], Iterable[Mapping[str, Any]]]  # what a step has to tell

SECONDS = 60
BETTER: dict[str, Callable[[float, float], bool]] = {
    "lower": lambda new, old: new < old,
    "higher": lambda new, old: new > old,
}


def evaluating(
    steps: Iterable[Step], evaluate: Callable[[], Mapping[str, float]], *, every: int
) -> Iterator[Step]:
    """Every so many steps, and when the budget is spent, give a step the scores of an evaluation.

    In parallel runs every process evaluates, and all must come to the same scores.
    """
    for step in steps:
        due = step.number % every == 0 or step.last
        yield replace(step, scores=evaluate()) if due else step


def early_stopping(
    steps: Iterable[Step],
    notes: dict[str, Any],
    *,
    score: str,
    patience: int = 3,
    better: str = "lower",
) -> Iterator[Step]:
    """End when so many evaluations in a row have not been better than the best one.

    What it must remember it keeps in `notes`, which are saved with the state.
    """
    improves = BETTER[one_of("better", better, BETTER)]
    memory = notes.setdefault("early_stopping", {"best": None, "step": None, "since": 0})
    for step in steps:
        if step.scores:
            if score not in step.scores:
                raise ConfigError(f"no score {score!r} to stop by", fix=suggest(score, step.scores))
            new, old = step.scores[score], memory["best"]
            if math.isfinite(new) and (old is None or improves(new, old)):
                memory.update(best=new, step=step.number, since=0)
            else:
                memory["since"] += 1
        yield step
        if memory["since"] >= patience:
            return


def saving(
    steps: Iterable[Step],
    save: Callable[[], object],
    *,
    every: int | None = None,
    minutes: float | None = None,
) -> Iterator[Step]:
    """Save every so many steps or minutes, and at the end, whatever the reason for ending.

    A bad step leaves the state of the step before it, which is saved. Any other error is no end:
    what was saved before it stands.
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


def telling(
    steps: Iterable[Step],
    tell: Callable[[Mapping[str, Any]], object],
    *,
    rows: Rows,
    every: int = 1,
) -> Iterator[Step]:
    """Tell the rows of every so many steps, of each with scores, and of the last.

    A row is told as soon as its numbers have come from the device, without waiting for them; in the
    end, whatever the reason for ending, those that are still on their way are waited for.
    """
    waiting: deque[Step] = deque()
    untold: Step | None = None  # the last one, where it is in no row yet

    def arrived(*, wait: bool) -> None:
        while waiting and (wait or waiting[0].ready):
            for row in rows(waiting.popleft()):
                tell(row)

    try:
        for step in steps:
            untold = step
            if step.scores or step.number % every == 0:
                waiting.append(step)
                untold = None
            arrived(wait=False)
            yield step
    finally:
        if untold is not None:
            waiting.append(untold)
        arrived(wait=True)


def writing_metrics(
    steps: Iterable[Step], path: Path, *, rows: Rows, every: int = 1, after: int = 0
) -> Iterator[Step]:
    """One JSON object to a line for every so many steps, for each with scores, and for the last.

    The file is added to, not written anew, for people watch it grow.
    `after` is the step from which a run goes on: what an earlier sitting wrote about later steps,
    which are now taken again, is cut off first.
    """
    truncate_metrics(path, after)
    with path.open("a", encoding="utf-8", buffering=1) as file:  # each line is on disk at once
        yield from telling(steps, lambda row: file.write(metrics_line(row)), rows=rows, every=every)


def writing_tensorboard(
    steps: Iterable[Step], folder: Path, *, rows: Rows, every: int = 1, after: int = 0
) -> Iterator[Step]:
    """The numbers of metrics.jsonl as curves in TensorBoard, such as train/lr and eval/mlm_loss."""
    from torch.utils.tensorboard import SummaryWriter

    def tell(row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float):
                writer.add_scalar(f"{row['kind']}/{name}", value, row["step"])

    with SummaryWriter(str(folder), purge_step=after + 1) as writer:
        yield from telling(steps, tell, rows=rows, every=every)


def need_tensorboard() -> None:
    """Say what is missing before the work, not in the middle of it."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MissingExtraError("writing for TensorBoard", extra="tensorboard") from None
