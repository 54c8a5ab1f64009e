"""What a model learns from: an objective turns a model and a batch into named sums.

An objective holds no state and never averages: whoever adds up micro-batches and processes knows
the count of the whole, and divides once. So accumulated and parallel runs equal one big batch.
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
that carries no gradient is reported and not learned from."""


class Batch(Protocol):
    """Sequences that a trainer can count and cut."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many targets each loss has here, known before anything is computed."""
        ...

    @property
    def lengths(self) -> NDArray[Any]:
        """Tokens of each sequence."""
        ...

    @property
    def sample_ids(self) -> NDArray[Any]:
        """Which samples of the data these are."""
        ...

    def split(self, parts: int) -> Sequence[Self]:
        """The same sequences in up to so many batches, about equal in tokens."""
        ...


@runtime_checkable
class Arrayed(Protocol):
    """A batch in a form whose shapes come again, as a GPU likes it."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All that an objective reads of it."""
        ...


@dataclass(frozen=True)
class DeviceBatch:
    """A batch whose arrays lie on the device; the objective reads these and nothing else of it."""

    batch: Any
    tensors: Mapping[str, Tensor]

    @classmethod
    def on(cls, device: torch.device, batch: Any) -> "DeviceBatch":  # noqa: ANN401
        arrays = batch.arrays()
        return cls(batch, {name: on_device(array, device) for name, array in arrays.items()})


B = TypeVar("B", bound=Batch)
Objective: TypeAlias = Callable[[Any, B, torch.Generator | None], Terms]


class Learner(nn.Module):
    """A model and what it learns from, as one module.

    Heads are called outside a model's own `forward`; DDP and FSDP only see what happens inside the
    module they wrap. So this is what they wrap.
    """

    def __init__(self, model: nn.Module, objective: Objective[Any]) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Batch | DeviceBatch, rng: torch.Generator | None = None) -> Terms:
        return self.objective(self.model, batch, rng)


def tokens_of(batch: Batch) -> int:
    return int(batch.lengths.sum())


def counted_as(term: str) -> str:
    """The name under which a term's targets are counted: `mlm` for `mlm.accuracy`."""
    return term.partition(".")[0]


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor there, without making a GPU wait: only pinned memory is copied so."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """−Σ log softmax(logits)[target], in float32 at least; targets of −100 are left out."""
    return F.cross_entropy(exact(logits), targets, reduction="sum")


def exact(values: Tensor) -> Tensor:
    """In float32 at least: what a loss is computed in."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def weighted(loss: Tensor, weight: float) -> Tensor:
    """The loss as it is, with a gradient so many times as large.

    So what is reported is plain (a perplexity follows from `mlm`), whatever the weights are.
    """
    return loss.detach() + weight * (loss - loss.detach())


@torch.no_grad()
def correct(logits: Tensor, targets: Tensor) -> Tensor:
    """How many targets have the highest score."""
    return (logits.argmax(-1) == targets).sum().float()
