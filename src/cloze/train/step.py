"""The result of one training step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


class AsyncValues:
    """Numbers that are copied from a device asynchronously.

    `read` waits for this copy only, not for what was launched on the device after it.
    """

    def __init__(self, values: Tensor) -> None:
        # only CUDA has events for copies, so only there the copy is asynchronous
        self._values = values.detach().to("cpu", non_blocking=values.is_cuda)
        self._arrived = torch.cuda.Event() if values.is_cuda else None
        if self._arrived is not None:
            self._arrived.record()

    @property
    def is_ready(self) -> bool:
        return self._arrived is None or self._arrived.query()

    def read(self) -> list[float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._values.tolist()


@dataclass(frozen=True)
class StepOutput:
    """What a step computed: the means by name, then the gradient norm, and 1 for a bad step."""

    names: tuple[str | None, ...]  # None: this term has no target in the batch
    numbers: Tensor


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training step. Its losses are read from the device on first access."""

    number: int  # counted from 1
    tokens: int  # so far, over all processes
    seconds: float  # of training so far, also before it was resumed; equal in all processes
    lr: float
    is_last: bool  # it spends the budget; unknown in advance for a budget in minutes
    sample_ids: Sequence[np.ndarray]  # of this process, by micro-batch
    names: tuple[str | None, ...]  # None: this term has no target in the batch
    numbers: AsyncValues  # means in the order of `names`, gradient norm, 1 for a bad step
    scores: Mapping[str, float] = field(default_factory=dict)  # of an evaluation after the step

    @property
    def is_ready(self) -> bool:
        """Whether the numbers can be read without waiting."""
        return self.numbers.is_ready

    @cached_property
    def means(self) -> Mapping[str, float]:
        """The mean of each loss and metric over the global batch."""
        named = zip(self.names, self._read, strict=False)
        return {name: value for name, value in named if name is not None}

    @property
    def loss(self) -> float:
        """The sum of the losses, without the metrics, whose names contain a dot."""
        return sum(value for name, value in self.means.items() if "." not in name)

    @property
    def grad_norm(self) -> float:
        """The gradient norm before clipping."""
        return self._read[-2]

    @property
    def is_bad(self) -> bool:
        """Whether the guard skipped the step: no weight has changed."""
        return bool(self._read[-1])

    @cached_property
    def _read(self) -> list[float]:
        return self.numbers.read()
