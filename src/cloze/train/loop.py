"""The training loop: one generator, no callbacks, no knowledge of any model; and evaluation.

Logging, evaluation and saving are step consumers (`cloze.train.consumers`). On a GPU the loop waits
for nothing but the check of the step before the last one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from cloze.contention import MONITOR
from cloze.errors import InputError
from cloze.nn.utils import eval_mode
from cloze.objectives.core import B, get_count_name
from cloze.train.cuda_graphs import CUDAGraphCache
from cloze.train.forward_context import autocast
from cloze.train.gradients import (
    Counts,
    apply_gradients,
    compute_gradients,
    split_batches,
)
from cloze.train.optim import set_lr
from cloze.train.schedule import Budget, Progress, Schedule
from cloze.train.state import TrainState
from cloze.train.step import AsyncValues, Step

BatchSource: TypeAlias = Callable[[int], Iterable[Sequence[B]]]
"""Called with the index of the first step; yields this process's micro-batches of each step."""


def training_steps(
    state: TrainState,
    data: BatchSource[B],
    *,
    budget: Budget,
    schedule: Schedule,
    stop: Callable[[], bool] = lambda: False,
    graphs: CUDAGraphCache | None = None,
) -> Iterator[Step]:
    """Run training steps, one for each `next`, until the budget is spent.

    Losses and gradients are means over the global batch, that is over the micro-batches of all
    processes, and equal those of one large batch. When `stop` returns True in any process, all end
    after the same step. A bad step raises before it changes the weights, or is skipped, depending
    on the guard.
    """
    graphs = CUDAGraphCache(apply_gradients) if graphs is None else graphs
    start = time.monotonic() - state.progress.seconds
    groups = iter(data(state.progress.step))
    while not budget.is_spent(state.progress):
        micro = split_batches(state, _next(groups, state.progress))
        agreed = _agree(state, micro, time.monotonic() - start, stop())
        state.progress = before = Progress(
            state.progress.step, state.progress.tokens, agreed.seconds
        )
        if agreed.stop or budget.is_spent(before):
            break
        MONITOR.check()
        state.learner.train()
        factor = schedule(budget.fraction_at_next_step(before, agreed.tokens))
        # batches of text whose length varies scale the learning rate with it
        lr = set_lr(state.optimizer, factor * getattr(micro[0], "lr_scale", 1.0))
        output = graphs.run_step(state, micro, agreed.counts)
        if output is None:
            buffers = state.copy_buffers()
            parts = compute_gradients(state, micro, agreed.counts, agreed.max_tokens)
            output = apply_gradients(state, parts, buffers)
        # several processes use the time that they agreed on
        seconds = agreed.seconds if state.distributed.world_size > 1 else time.monotonic() - start
        state.progress = Progress(before.step + 1, before.tokens + agreed.tokens, seconds)
        step = Step(
            number=state.progress.step,
            tokens=state.progress.tokens,
            seconds=seconds,
            lr=lr,
            is_last=budget.is_spent(state.progress),
            sample_ids=[batch.sample_ids for batch in micro],
            names=output.names,
            numbers=AsyncValues(output.numbers),
        )
        state.pending.append((step, before))
        state.check_pending(wait=False)
        yield step
    state.check_pending()


@torch.no_grad()
def evaluate_objective(state: TrainState, batches: Sequence[B]) -> dict[str, float]:
    """The mean of each loss and metric: its sum over all batches, divided by its count.

    The batches are divided among the processes, which get equal results. All call the model
    equally often, as FSDP requires: a process without a batch repeats one and does not count it.
    """
    distributed, learner = state.distributed, state.learner
    # summed at the end on the CPU: some devices lack float64, and none is waited for
    sums: dict[str, list[torch.Tensor]] = {}
    counts: dict[str, int] = {}
    with eval_mode(learner):
        for first in range(0, len(batches), distributed.world_size):
            mine = first + distributed.rank
            batch = batches[min(mine, len(batches) - 1)]
            with autocast(state.config.dtype, state.device):
                terms = learner(batch)
            for name, total in terms.items():
                real = mine < len(batches)
                sums.setdefault(name, []).append(total * real)
                counts[name] = counts.get(name, 0) + batch.counts[get_count_name(name)] * real
    totals = [float(torch.stack(parts).cpu().double().sum()) for parts in sums.values()]
    everywhere = distributed.sum_over_processes([*totals, *counts.values()])
    means = zip(everywhere[: len(sums)], everywhere[len(sums) :], strict=True)
    return {name: total / count for name, (total, count) in zip(sums, means, strict=True) if count}


@dataclass(frozen=True)
class _Agreed:
    """What all processes know about the next step."""

    seconds: float
    stop: bool
    tokens: int
    max_tokens: int
    counts: Counts


def _agree(state: TrainState, micro: Sequence[B], seconds: float, stop: bool) -> _Agreed:
    names = sorted(micro[0].counts)
    mine = [sum(batch.counts[name] for batch in micro) for name in names]
    sizes = [batch.size for batch in micro]
    tokens, *counts = state.distributed.sum_over_processes([sum(sizes), *mine])
    if not any(counts):
        raise InputError(
            f"the batch of step {state.progress.step + 1} has no training targets",
            fix="raise the masking probability or the batch size",
        )
    clock = seconds if state.distributed.is_first else 0.0  # all use the clock of the first process
    now, ends, max_tokens = state.distributed.max_over_processes([clock, stop, max(sizes)])
    return _Agreed(
        now, bool(ends), int(tokens), int(max_tokens), dict(zip(names, counts, strict=True))
    )


def _next(groups: Iterator[Sequence[B]], progress: Progress) -> Sequence[B]:
    group = next(groups, None)
    if not group:
        raise InputError(
            f"the data ended after step {progress.step}, before the budget was spent",
            fix="choose a smaller budget, or provide data that repeat",
        )
    return group
