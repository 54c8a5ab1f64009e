"""Objectives: functions from a model and a batch to named sums.

An objective has no state and never averages: the training loop adds up micro-batches and processes
and divides once by the global count. So accumulated and parallel runs equal one large batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

Terms: TypeAlias = Mapping[str, Tensor]
"""Sums over a batch. `mlm` is a loss; `mlm.accuracy` is another sum over what `mlm` counts. A term
without a gradient is reported only."""


class Batch(Protocol):
    """Sequences that the training loop can count and split."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of targets of each loss, known before anything is computed."""
        ...

    @property
    def lengths(self) -> NDArray[Any]:
        """The number of tokens of each sequence."""
        ...

    @property
    def sample_ids(self) -> NDArray[Any]:
        """The ids of the samples of the data."""
        ...

    def split(self, parts: int) -> Sequence[Self]:
        """Split the sequences into up to `parts` batches with about equally many tokens."""
        ...


@runtime_checkable
class ArrayBatch(Protocol):
    """A batch as padded arrays, of few different shapes."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Everything that an objective reads."""
        ...


@dataclass(frozen=True)
class DeviceBatch:
    """A batch with its arrays on the device; the objective reads only these."""

    batch: Any
    tensors: Mapping[str, Tensor]

    @classmethod
    def from_batch(cls, device: torch.device, batch: Any) -> "DeviceBatch":  # noqa: ANN401
        arrays = batch.arrays()
        return cls(batch, {name: copy_to_device(array, device) for name, array in arrays.items()})


B = TypeVar("B", bound=Batch)
Objective: TypeAlias = Callable[[Any, B, torch.Generator | None], Terms]


class Learner(nn.Module):
    """A model with its objective, as one module.

    Heads are called outside of a model's `forward`, but DDP and FSDP only handle what happens in
    the module they wrap. So they wrap this one.
    """

    def __init__(self, model: nn.Module, objective: Objective[Any]) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch | DeviceBatch, rng: torch.Generator | None = None) -> Terms:
        return self.objective(self.model, batch, rng)


def count_tokens(batch: Batch) -> int:
    return int(batch.lengths.sum())


def get_count_name(term: str) -> str:
    """The name under which a term's targets are counted: `mlm` for `mlm.accuracy`."""
    return term.partition(".")[0]


def copy_to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor on the device; copied to a GPU asynchronously, from pinned memory."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """−Σ log softmax(logits)[target], in float32 at least; targets of −100 are ignored."""
    return F.cross_entropy(upcast_to_float32(logits), targets, reduction="sum")


def upcast_to_float32(values: Tensor) -> Tensor:
    """The values in float32 at least, for losses."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def scale_gradient(loss: Tensor, weight: float) -> Tensor:
    """The loss itself, with its gradient scaled by `weight`.

    So the reported losses do not depend on the weights (`mlm` gives the perplexity).
    """
    return loss.detach() + weight * (loss - loss.detach())


@torch.no_grad()
def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """The number of targets with the top logit."""
    return (logits.argmax(-1) == targets).sum().float()
