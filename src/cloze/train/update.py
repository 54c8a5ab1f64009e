"""From gradients to new weights: clipped, judged, applied or held back, without waiting."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from cloze.train.guard import is_bad, most_bad, update_unless
from cloze.train.parallel import whole

if TYPE_CHECKING:
    from cloze.train.state import TrainState


@dataclass(frozen=True)
class Taken:
    """What a step came to: the means by name, then the gradient's norm and 1 for a bad step."""

    names: tuple[str | None, ...]  # None: of this the batch had no target
    numbers: Tensor


def update(state: "TrainState", parts: Mapping[str, Tensor], carried: Sequence[Tensor]) -> Taken:
    """Apply the gradients in the weights; `parts` are this process's part of each mean.

    `carried` is what the model remembered before the step, to which a bad step goes back.
    All of it is launched and nothing is read, and what is remembered is changed in place, so that a
    GPU can record it.
    """
    means = state.team.add(torch.stack(list(parts.values())))
    norm = whole(nn.utils.clip_grad_norm_(state.model.parameters(), state.config.clip_norm))
    bad = _judge(state, means, norm)
    update_unless(bad, state.optimizer)
    for buffer, before in zip(state.model.buffers(), carried, strict=True):
        buffer.copy_(torch.where(bad, before, buffer))
    state.optimizer.zero_grad(set_to_none=True)
    return Taken(tuple(parts), torch.cat([means, torch.stack([norm, bad.float()])]))


def _judge(state: "TrainState", means: Tensor, norm: Tensor) -> Tensor:
    """Whether to hold the step back; after one bad step too many all that follow are held back."""
    clip = state.config.clip_norm
    usual = clip if math.isfinite(clip) else 0.0  # what is let through as it is
    bad = is_bad(means, norm, state.norms, usual=usual)
    bad = bad | (state.streak >= most_bad(state.config.guard))
    state.streak.add_(1).mul_(bad)
    later = torch.cat([state.norms[1:], norm.view(1)])  # a bad norm is not remembered
    state.norms.copy_(torch.where(bad, state.norms, later))
    return bad
