"""The training loop: one generator, no callbacks, no knowledge of any model.

Whoever drives it logs, evaluates and saves as it likes (`cloze.train.consumers`). On a GPU nothing
here waits for the device but for the verdict on the step before the last one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cloze.errors import InputError
from cloze.objectives.core import B, tokens_of
from cloze.train.budget import Budget, Progress
from cloze.train.cuda_graphs import CUDAGraphCache
from cloze.train.gradients import (
    Counts,
    apply_gradients,
    compute_gradients,
    split_batches,
)
from cloze.train.optim import set_lr
from cloze.train.schedule import Schedule
from cloze.train.state import TrainState
from cloze.train.step import Later, Step

Data: TypeAlias = Callable[[int], Iterable[Sequence[B]]]
"""From a step's number to what is learned from then on: for each step this process's micro-batches.
Seeking is the data's business; going on after a step is asking for it again from there."""


def run(
    state: TrainState,
    data: Data[B],
    *,
    budget: Budget,
    schedule: Schedule,
    stop: Callable[[], bool] = lambda: False,
    graphs: CUDAGraphCache | None = None,
) -> Iterator[Step]:
    """Take steps, one each time the iterator is asked, until the budget is spent.

    The losses and the gradient are means over the global batch, that is over the micro-batches of
    all processes, and equal those of one big batch. When `stop` says so in any process, all end
    after the same step. A bad step raises before it touches the weights, or is skipped, as the
    guard is set.
    """
    graphs = CUDAGraphCache(apply_gradients) if graphs is None else graphs
    began = time.monotonic() - state.progress.seconds
    groups = iter(data(state.progress.step))
    while not budget.spent(state.progress):
        micro = split_batches(state, _next(groups, state.progress))
        agreed = _agree(state, micro, time.monotonic() - began, stop())
        state.progress = before = Progress(
            state.progress.step, state.progress.tokens, agreed.seconds
        )
        if agreed.stop or budget.spent(before):
            break
        state.learner.train()
        rate = set_lr(state.optimizer, schedule(budget.midway(before, agreed.tokens)))
        output = graphs.run_step(state, micro, agreed.counts)
        if output is None:
            buffers = state.copy_buffers()
            parts = compute_gradients(state, micro, agreed.counts, agreed.biggest)
            output = apply_gradients(state, parts, buffers)
        # one process knows when the step was taken; several go by the time they agreed on
        seconds = agreed.seconds if state.team.world > 1 else time.monotonic() - began
        state.progress = Progress(before.step + 1, before.tokens + agreed.tokens, seconds)
        step = Step(
            number=state.progress.step,
            tokens=state.progress.tokens,
            seconds=seconds,
            rate=rate,
            last=budget.spent(state.progress),
            sample_ids=[batch.sample_ids for batch in micro],
            names=output.names,
            numbers=Later(output.numbers),
        )
        state.unsettled.append((step, before))
        state.settle(wait=False)
        yield step
    state.settle()


@dataclass(frozen=True)
class _Agreed:
    """What all processes know about the next step."""

    seconds: float
    stop: bool
    tokens: int
    biggest: int
    counts: Counts


def _agree(state: TrainState, micro: Sequence[B], seconds: float, stop: bool) -> _Agreed:
    names = sorted(micro[0].counts)
    mine = [sum(batch.counts[name] for batch in micro) for name in names]
    sizes = [tokens_of(batch) for batch in micro]
    tokens, *counts = state.team.total([sum(sizes), *mine])
    if not any(counts):
        raise InputError(
            f"the batch of step {state.progress.step + 1} has nothing to learn from",
            fix="mask more of it, or make it larger",
        )
    clock = seconds if state.team.first else 0.0  # the first process's clock is everyone's
    now, ends, biggest = state.team.largest([clock, stop, max(sizes)])
    return _Agreed(
        now, bool(ends), int(tokens), int(biggest), dict(zip(names, counts, strict=True))
    )


def _next(groups: Iterator[Sequence[B]], progress: Progress) -> Sequence[B]:
    group = next(groups, None)
    if not group:
        raise InputError(
            f"the data ended after step {progress.step}, before the budget was spent",
            fix="give a budget the data can fill, or data that begin again",
        )
    return group
