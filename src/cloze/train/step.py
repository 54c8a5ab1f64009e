"""What one step of training has to tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


class Later:
    """Numbers on their way from a device.

    The copy is sent off at once and nobody waits for it; `read` waits for these numbers, not for
    whatever the device was told to do after them.
    """

    def __init__(self, values: Tensor) -> None:
        # only CUDA says when a copy has arrived, so only there it is not waited for
        self._values = values.detach().to("cpu", non_blocking=values.is_cuda)
        self._arrived = torch.cuda.Event() if values.is_cuda else None
        if self._arrived is not None:
            self._arrived.record()

    @property
    def ready(self) -> bool:
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
    """One step. Its losses are read from the device when someone asks for them."""

    number: int  # of steps taken, this one among them
    tokens: int  # seen so far, by all processes
    seconds: float  # since the run began, over all its sittings; the same in all processes
    rate: float
    last: bool  # the budget is spent with it; one of minutes shows that only afterwards
    sample_ids: Sequence[np.ndarray]  # in this process, by micro-batch
    names: tuple[str | None, ...]  # None: of this the batch had no target
    numbers: Later  # the means in the order of `names`, the gradient's norm, 1 for a bad step
    scores: Mapping[str, float] = field(default_factory=dict)  # of an evaluation after this step

    @property
    def ready(self) -> bool:
        """Whether reading would not wait."""
        return self.numbers.ready

    @cached_property
    def means(self) -> Mapping[str, float]:
        """Losses, accuracies …: the mean of each over the global batch."""
        named = zip(self.names, self._read, strict=False)
        return {name: value for name, value in named if name is not None}

    @property
    def norm(self) -> float:
        """Of the gradient, before clipping."""
        return self._read[-2]

    @property
    def bad(self) -> bool:
        """The guard held this step back: no weight has moved."""
        return bool(self._read[-1])

    @cached_property
    def _read(self) -> list[float]:
        return self.numbers.read()
