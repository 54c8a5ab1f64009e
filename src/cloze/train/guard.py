"""Stop bad steps before they touch the weights.

All of it is computed where the gradients are. A GPU is told to leave the weights alone without the
program waiting for its verdict; the program reads the verdict one step later.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from cloze.errors import ClozeError
from cloze.train.config import GuardAction

SPIKE = 50.0  # a gradient norm so many times what is usual is bad, too
WINDOW = 100  # how many norms are remembered; half of them must be there to judge by
PATIENCE = 10  # with "skip": so many bad steps in a row stop the run all the same
SHOWN = 16  # sample ids in a message


class TrainingError(ClozeError):
    """A run cannot go on."""


class BadStepError(TrainingError):
    """The guard ended a run: the state is that of the step before, in all processes alike."""


class SkippedStepWarning(UserWarning):
    """A bad step was left out."""


def most_bad(action: GuardAction) -> int:
    """So many bad steps in a row end a run."""
    return 1 if action == "stop" else PATIENCE


def remedy(action: GuardAction) -> str:
    """What to do about a run that was ended, beyond what was done already."""
    anew = "start again with a lower rate or a longer warm-up"
    if action == "stop":
        return f"{anew}, or go on and let such steps be skipped: --resume --set run.guard=skip"
    return f"look at these samples, and {anew}"


def no_norms(device: torch.device) -> Tensor:
    """The memory of a run that has not begun: NaN stands for a norm that is not known."""
    return torch.full((WINDOW,), torch.nan, device=device)


def is_bad(means: Tensor, norm: Tensor, recent: Tensor, *, usual: float = 0.0) -> Tensor:
    """Whether a loss or the gradient is not finite, or the gradient far above what is usual.

    That is the median of the last norms, or `usual` where they are smaller: of a model that has
    learned its data by heart the gradients are next to nothing, and one ordinary example stands
    out.
    """
    ordered = recent.sort().values  # NaN comes last
    known = recent.isfinite().sum()
    middle = ((known - 1) // 2).clamp(min=0)
    median = ordered.index_select(0, middle.view(1)).squeeze()
    spike = (known >= len(recent) // 2) & (norm > SPIKE * median.clamp(min=usual))
    return spike | ~norm.isfinite() | ~means.isfinite().all()


def update_unless(bad: Tensor, optimiser: Optimizer) -> None:
    """One step of the optimiser, or none: with `bad` neither weights nor moments change.

    Fused optimisers read the flag on the device, through the door that gradient scaling uses; the
    others need it here.
    """
    if getattr(optimiser, "_step_supports_amp_scaling", False):
        optimiser.found_inf = bad.float()  # type: ignore[attr-defined]
        optimiser.step()
        del optimiser.found_inf  # type: ignore[attr-defined]
    elif not bad:
        optimiser.step()


def name_samples(sample_ids: Sequence[np.ndarray]) -> str:
    """The samples of a step, for a message."""
    ids = np.concatenate(list(sample_ids)) if sample_ids else np.empty(0, int)
    shown = ", ".join(map(str, ids[:SHOWN].tolist()))
    return f"samples {shown}" + (f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else "")
