"""Whether the budget of a run is large enough to learn anything; said as early as it is known."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cloze.train.schedule import SECONDS, Budget, Progress
from cloze.train.step import Step

MIN_STEPS = 30
MIN_EPOCHS = 0.1
_TIMED_STEPS = 3  # the first one is slower than the others, much slower if it compiles the model
_LARGE_STEP = 0.1  # fraction of the budget: one step is enough to know
_LARGE_FIRST_STEP = 0.5  # the same for the time of the first one


@dataclass(frozen=True, kw_only=True)
class BudgetAdvice:
    """What helps against a budget that is too small."""

    faster_steps: str  # "a smaller batch size (--batch-size)"
    more_steps: str = "more steps (--steps)"  # where their number is given
    steps_per_epoch: int | None = None  # of runs that should read all of their data


def check_budget(
    steps: Iterator[Step],
    budget: Budget,
    start: Progress,
    advice: BudgetAdvice,
    warn: Callable[[str], object],
) -> Iterator[Step]:
    """Warn before the first step if there are few, or as soon as the size of a step is known."""
    if budget.steps is not None and budget.steps < MIN_STEPS and not start.step:
        warn(_describe_steps(budget.steps, advice))
    is_open, begin = budget.steps is None and not start.step, 0.0
    for step in steps:
        if is_open:
            begin = step.seconds if step.number == 1 else begin
            spent = budget.fraction(Progress(step.number, step.tokens, step.seconds))
            is_first_timed = budget.minutes is not None and step.number == 1
            enough = _LARGE_FIRST_STEP if is_first_timed else _LARGE_STEP
            if step.number >= _TIMED_STEPS or spent >= enough:
                is_open = False
                message = _describe_rate(budget, step, begin, advice)
                if message and spent < 1:
                    warn(message)
        yield step


def _describe_steps(steps: int, advice: BudgetAdvice) -> str:
    return f"only {_count(steps)}, too few to learn much: use {advice.more_steps}"


def _describe_rate(budget: Budget, step: Step, begin: float, advice: BudgetAdvice) -> str | None:
    """A warning about too few steps, as estimated from the first ones."""
    timed = step.number - 1
    seconds = (step.seconds - begin) / timed if timed else step.seconds
    if budget.tokens is not None:
        steps = budget.tokens / max(step.tokens / step.number, 1)
        return None if steps >= MIN_STEPS else _describe_steps(max(1, round(steps)), advice)
    assert budget.minutes is not None
    steps = budget.minutes * SECONDS / max(seconds, 1e-9)
    needed = max(MIN_STEPS, MIN_EPOCHS * (advice.steps_per_epoch or 0))
    if steps >= needed:
        return None
    part = ""
    if advice.steps_per_epoch and steps < MIN_EPOCHS * advice.steps_per_epoch:
        part = f", {100 * steps / advice.steps_per_epoch:.2g} % of the training data"
    minutes = math.ceil(needed * seconds / SECONDS)
    return (
        f"about {_count(max(1, round(steps)))} in {budget.minutes:g} minutes ({seconds:.2g} s each)"
        f"{part}, too few to learn much: use --minutes {minutes} or more, or {advice.faster_steps}"
    )


def _count(steps: int) -> str:
    return f"{steps:,} {'step' if steps == 1 else 'steps'}"
