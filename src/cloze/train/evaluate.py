"""Evaluate a training objective on held-out batches."""

from collections.abc import Sequence

import torch

from cloze.nn.utils import eval_mode
from cloze.objectives.core import B, count_name
from cloze.train.forward_context import autocast
from cloze.train.state import TrainState


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
                counts[name] = counts.get(name, 0) + batch.counts[count_name(name)] * real
    totals = [float(torch.stack(parts).cpu().double().sum()) for parts in sums.values()]
    everywhere = distributed.sum_over_processes([*totals, *counts.values()])
    means = zip(everywhere[: len(sums)], everywhere[len(sums) :], strict=True)
    return {name: total / count for name, (total, count) in zip(sums, means, strict=True) if count}
