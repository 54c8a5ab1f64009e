"""Steps that a GPU records once and then repeats at one word.

A step of a small model is hundreds of small kernels, and launching them takes the program longer
than the GPU needs to run them. Where the shapes of a batch come again, the whole step (forwards,
backwards, clipping, the guard, the optimiser) is recorded as a CUDA graph at their second coming
and from then on replayed. What differs between steps lies in memory that stays in place: the batch,
its counts, the learning rate; dropout draws from the seed that is set before each replay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cloze.objectives.core import Arrayed, Batch, Placed, counted_as, on_device
from cloze.train.keyed import keyed
from cloze.train.memory import out_of_memory
from cloze.train.precision import precision
from cloze.train.update import Taken, update

if TYPE_CHECKING:
    from cloze.train.state import TrainState

Key = tuple[Any, ...]


@dataclass(frozen=True)
class _Record:
    graph: torch.cuda.CUDAGraph
    inputs: Mapping[str, Tensor]
    counts: Mapping[str, Tensor]
    taken: Taken


class Records:
    """The recorded steps of one run, by the shapes of their batches and by what learns."""

    def __init__(self) -> None:
        self._seen: set[Key] = set()
        self._records: dict[Key, _Record] = {}
        self._usable = True
        self._pool: Any = None  # one memory for all: only one of them runs at a time

    def __len__(self) -> int:
        """How many there are."""
        return len(self._records)

    def take(
        self, state: "TrainState", micro: Sequence[Batch], counts: Mapping[str, float]
    ) -> Taken | None:
        """The step, recorded or replayed; None where it must be taken the ordinary way."""
        if not (self._usable and _recordable(state, micro)):
            return None
        (batch,) = micro
        assert isinstance(batch, Arrayed)
        arrays = batch.arrays()
        tensors = {name: on_device(array, state.device) for name, array in arrays.items()}
        key = _key(state, batch, tensors)
        if key not in self._seen:  # the first time warms up what must not happen while recording
            self._seen.add(key)
            return None
        if key not in self._records:
            try:
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                self._records[key] = _recorded(state, Placed(batch, tensors), counts, self._pool)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                self._usable = False  # the ordinary way knows what to do about it
                self._records.clear()
                return None
        record = self._records[key]
        for name, tensor in tensors.items():
            record.inputs[name].copy_(tensor)
        for name, count in counts.items():
            record.counts[name].fill_(count)
        with keyed(state.device, state.config.seed, state.progress.step, state.team.rank, 0):
            record.graph.replay()
        return replace(record.taken, names=present(record.taken.names, counts))


def present(names: Sequence[str | None], counts: Mapping[str, float]) -> tuple[str | None, ...]:
    """The names of what there were targets for; the rest is recorded too, but is no mean."""
    return tuple(name if name and counts[counted_as(name)] else None for name in names)


def _recordable(state: "TrainState", micro: Sequence[Batch]) -> bool:
    return (
        state.device.type == "cuda"
        and state.team.world == 1
        and len(micro) == 1
        and isinstance(micro[0], Arrayed)
        and all(isinstance(group["lr"], Tensor) for group in state.optimizer.param_groups)
    )


def _key(state: "TrainState", batch: Batch, tensors: Mapping[str, Tensor]) -> Key:
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in tensors.items())
    # layers may thaw in the midst of a run
    learning = tuple(weight.requires_grad for weight in state.model.parameters())
    return shapes, learning, tuple(sorted(batch.counts))


def _recorded(
    state: "TrainState",
    placed: Placed,
    counts: Mapping[str, float],
    pool: Any,  # noqa: ANN401
) -> _Record:
    """Go through a step without its taking effect, and keep what was launched."""
    inputs = {name: tensor.clone() for name, tensor in placed.tensors.items()}
    divisors = {name: torch.ones((), device=state.device) for name in counts}
    state.optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        carried = state.carried()
        with precision(state.config.dtype, state.device):
            sums = state.learner(Placed(placed.batch, inputs), None)
        terms = {n: total / divisors[counted_as(n)].clamp(min=1) for n, total in sums.items()}
        losses = [term for term in terms.values() if term.requires_grad]
        torch.stack(losses).sum().backward()
        taken = update(state, {name: term.detach() for name, term in terms.items()}, carried)
    return _Record(graph, inputs, divisors, taken)
