"""The means of what an objective measures, over data the model does not learn from."""

from collections.abc import Sequence

import torch

from cloze.nn.utils import eval_mode
from cloze.objectives.core import B, counted_as
from cloze.train.forward_context import autocast
from cloze.train.state import TrainState


@torch.no_grad()
def averages(state: TrainState, batches: Sequence[B]) -> dict[str, float]:
    """Loss, accuracy …: each sum over all batches, divided by its count over all batches.

    The processes share the batches and come to the same numbers. All call the model equally often,
    as FSDP needs it: those that have no batch left compute one again and do not count it.
    """
    team, learner = state.team, state.learner
    # added up in the end, on the CPU: not every device has float64, and none is to be waited for
    sums: dict[str, list[torch.Tensor]] = {}
    counts: dict[str, int] = {}
    with eval_mode(learner):
        for first in range(0, len(batches), team.world):
            mine = first + team.rank
            batch = batches[min(mine, len(batches) - 1)]
            with autocast(state.config.dtype, state.device):
                terms = learner(batch)
            for name, total in terms.items():
                real = mine < len(batches)
                sums.setdefault(name, []).append(total * real)
                counts[name] = counts.get(name, 0) + batch.counts[counted_as(name)] * real
    totals = [float(torch.stack(parts).cpu().double().sum()) for parts in sums.values()]
    everywhere = team.total([*totals, *counts.values()])
    means = zip(everywhere[: len(sums)], everywhere[len(sums) :], strict=True)
    return {name: total / count for name, (total, count) in zip(sums, means, strict=True) if count}
