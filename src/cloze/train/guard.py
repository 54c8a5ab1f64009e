"""Detect bad steps (NaN, infinity, spikes) before they change the weights.

Everything is computed on the device of the gradients. A GPU skips the update without the program
waiting for it; the program reads the result one step later.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from cloze.errors import ClozeError
from cloze.train.config import GuardAction

SPIKE = 50.0  # a gradient norm this many times the median is bad, too
USUAL_CLIP_RATIO = 10.0  # norms up to this many times clip_norm are usual: clipping bounds the step
WINDOW = 100  # number of recent norms; at least half are needed to detect a spike
PATIENCE = 10  # with "skip", this many bad steps in a row stop the run
EXPLOSION = 20.0  # a loss this many times the first one (or 1) is too large …
EXPLODED_STEPS = 3  # … and so many of them in a row stop the run
MAX_SHOWN = 16  # sample ids in a message


class TrainingError(ClozeError):
    """A run cannot continue."""


class BadStepError(TrainingError):
    """A bad step ended the run: the state is that of the step before, in all processes."""


class SkippedStepWarning(UserWarning):
    """A bad step was skipped."""


def max_bad_steps(action: GuardAction) -> int:
    """The number of bad steps in a row that end a run."""
    return 1 if action == "stop" else PATIENCE


def suggest_fix(action: GuardAction) -> str:
    """What to do about a run that diverged."""
    restart = "start again with a lower learning rate or a longer warm-up"
    if action == "stop":
        return f"{restart}, or continue and skip such steps: --resume --set run.guard=skip"
    return f"check these samples, and {restart}"


class ExplosionGuard:
    """Stops a run whose loss grows far beyond its first value, although it stays finite.

    The first loss is in `notes`, which are saved with the training state.
    """

    def __init__(self) -> None:
        self._in_a_row = 0

    def check(self, step: int, loss: float, notes: dict[str, Any]) -> None:
        """Raise after a few steps in a row whose loss is too large."""
        first = notes.setdefault("first_loss", loss)
        self._in_a_row = self._in_a_row + 1 if loss > EXPLOSION * max(first, 1.0) else 0
        if self._in_a_row >= EXPLODED_STEPS:
            raise TrainingError(
                f"training diverged at step {step}: the loss is {loss:.4g}, and was {first:.4g} at "
                "the first step",
                fix="start again with a lower learning rate (--lr), a longer warm-up (--set "
                "schedule.warmup=0.1) or stronger clipping (--set run.clip_norm=0.5)",
            )


def empty_norms(device: torch.device) -> Tensor:
    """The recent norms of a new run: NaN stands for an unknown norm."""
    return torch.full((WINDOW,), torch.nan, device=device)


def is_bad_step(means: Tensor, norm: Tensor, recent: Tensor, *, usual: float = 0.0) -> Tensor:
    """Whether a loss or the gradient is not finite, or the gradient norm is a spike.

    A spike is far above the median of the recent norms, and above `usual` if that is larger: when a
    model has memorised its data, the gradients are tiny, and any ordinary example would stand out.
    """
    ordered = recent.sort().values  # NaN comes last
    known = recent.isfinite().sum()
    middle = ((known - 1) // 2).clamp(min=0)
    median = ordered.index_select(0, middle.view(1)).squeeze()
    spike = (known >= len(recent) // 2) & (norm > SPIKE * median.clamp(min=usual))
    return spike | ~norm.isfinite() | ~means.isfinite().all()


def step_optimizer_unless(bad: Tensor, optimizer: Optimizer) -> None:
    """Run the optimizer, or with `bad` change neither weights nor optimizer state.

    Fused optimizers read the flag on the device, as they do for gradient scaling; for others it is
    read here.
    """
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif not bad:
        optimizer.step()


def format_samples(sample_ids: Sequence[np.ndarray]) -> str:
    """The samples of a step, for an error message."""
    ids = np.concatenate(list(sample_ids)) if sample_ids else np.empty(0, int)
    shown = ", ".join(map(str, ids[:MAX_SHOWN].tolist()))
    return f"samples {shown}" + (
        f" and {len(ids) - MAX_SHOWN:,} more" if len(ids) > MAX_SHOWN else ""
    )
