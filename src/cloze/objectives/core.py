"""Objectives: functions of a model and a batch that return named sums.

An objective has no state and does not average: the training loop sums over micro-batches and
processes and divides once by the global count. So gradient accumulation and data parallelism give
the same result as one large batch. The exception is a `JointObjective`, whose loss compares all
sequences of a batch: its parts are embedded one after the other, and the loss is computed from the
vectors of all (`train/joint_gradients.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

Terms: TypeAlias = Mapping[str, Tensor]
"""Sums over a batch. `mlm` is a loss; `mlm.accuracy` is another sum over the same targets. A term
without a gradient is only reported."""


class Batch(Protocol):
    """Sequences that the training loop can count and split."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of targets of each loss, known before the forward pass."""
        ...

    @property
    def size(self) -> int:
        """The number of tokens, or of images, that a budget counts."""
        ...

    @property
    def lengths(self) -> NDArray[Any]:
        """The number of tokens of each sequence."""
        ...

    @property
    def sample_ids(self) -> NDArray[Any]:
        """The id of each sequence in the data."""
        ...

    def split(self, parts: int) -> Sequence[Self]:
        """Split the sequences into up to `parts` batches with about equally many tokens."""
        ...


@runtime_checkable
class ArrayBatch(Protocol):
    """A batch that can be converted to padded arrays, with few different shapes."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The arrays that an objective reads."""
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


class JointOutput(NamedTuple):
    """What a part of a batch contributes: vectors to the loss of the whole, and sums of its own."""

    vectors: Tensor  # b d
    terms: Terms
    loss_weights: tuple[Tensor, ...] = ()  # see `JointObjective.get_loss_weights`


@runtime_checkable
class JointObjective(Protocol):
    """An objective with a loss that compares the vectors of all sequences of a batch."""

    def embed(self, model: Any, batch: Any) -> Tensor:  # noqa: ANN401
        """The vectors of a part; the first of what `__call__` computes, with the same dropout."""
        ...

    def __call__(self, model: Any, batch: Any, rng: torch.Generator | None = None) -> JointOutput:  # noqa: ANN401
        """The vectors and the terms of a part."""
        ...

    def get_loss_weights(self, model: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
        """Weights of the model that the loss itself reads, such as a learned temperature."""
        ...

    def compute_loss(
        self,
        vectors: Tensor,
        batch: Any,  # noqa: ANN401
        loss_weights: tuple[Tensor, ...] = (),
    ) -> Terms:
        """The loss of the vectors of the whole batch (v d), times its number of targets."""
        ...


class JointBatch(Protocol):
    """A part of a batch for a joint objective."""

    @property
    def vectors(self) -> NDArray[Any]:
        """The index of each sequence's vector in the whole batch."""
        ...

    @property
    def num_vectors(self) -> int:
        """The number of vectors of the whole batch."""
        ...


class Learner(nn.Module):
    """A model with its objective, as one module.

    DDP and FSDP wrap this module instead of the model, because objectives call heads outside of the
    model's `forward`, and the wrappers handle only the `forward` of the module they wrap.
    """

    def __init__(self, model: nn.Module, objective: Objective[Any] | JointObjective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(
        self, batch: Batch | DeviceBatch, rng: torch.Generator | None = None
    ) -> Terms | JointOutput:
        return self.objective(self.model, batch, rng)


def get_count_name(term: str) -> str:
    """The name of the loss whose targets a term counts: `mlm` for `mlm.accuracy`."""
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
