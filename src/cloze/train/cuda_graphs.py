"""CUDA graphs of whole training steps.

A step of a small model launches hundreds of small kernels, which takes the program longer than the
GPU needs to run them. When a batch has the same shapes as an earlier one, the whole step (forward,
backward, clipping, guard, optimizer) is captured as a CUDA graph, and from then on replayed. What
differs between steps is in memory that stays in place: the batch, its counts, the learning rate;
dropout draws from the seed that is set before each replay.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from cloze.nn.utils import capture_graph
from cloze.objectives.core import ArrayBatch, Batch, DeviceBatch, copy_to_device, get_count_name
from cloze.train.forward_context import autocast, seed_rng
from cloze.train.joint_gradients import find_joint_objective
from cloze.train.memory import is_out_of_memory
from cloze.train.state import TrainState
from cloze.train.step import StepOutput

Key = tuple[Any, ...]
ApplyGradients: TypeAlias = Callable[
    [TrainState, Mapping[str, Tensor], Sequence[Tensor]], StepOutput
]


@dataclass(frozen=True)
class _CapturedStep:
    graph: torch.cuda.CUDAGraph
    inputs: Mapping[str, Tensor]
    counts: Mapping[str, Tensor]
    output: StepOutput


class CUDAGraphCache:
    """The captured steps of one run, by the shapes of their batches and the trained parameters."""

    def __init__(self, apply_gradients: ApplyGradients) -> None:
        self._apply = apply_gradients
        self._seen: set[Key] = set()
        self._steps: dict[Key, _CapturedStep] = {}
        self._is_usable = True
        self._pool: Any = None  # one memory pool for all graphs: only one of them runs at a time

    def __len__(self) -> int:
        """How many steps are captured."""
        return len(self._steps)

    def run_step(
        self, state: TrainState, micro: Sequence[Batch], counts: Mapping[str, float]
    ) -> StepOutput | None:
        """Capture or replay a step; None if it must be run without a graph."""
        if not (self._is_usable and _can_capture(state, micro)):
            return None
        (batch,) = micro
        assert isinstance(batch, ArrayBatch)
        arrays = batch.arrays()
        tensors = {name: copy_to_device(array, state.device) for name, array in arrays.items()}
        key = _graph_key(state, batch, tensors)
        if key not in self._seen:  # the first time warms up what must not happen while capturing
            self._seen.add(key)
            return None
        if key not in self._steps:
            try:
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                self._steps[key] = self._capture(state, DeviceBatch(batch, tensors), counts)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                self._is_usable = False  # without graphs, micro-batches are made smaller
                self._steps.clear()
                return None
        captured = self._steps[key]
        for name, tensor in tensors.items():
            captured.inputs[name].copy_(tensor)
        for name, count in counts.items():
            captured.counts[name].fill_(count)
        with seed_rng(
            state.device, state.config.seed, state.progress.step, state.distributed.rank, 0
        ):
            captured.graph.replay()
        return replace(captured.output, names=names_with_targets(captured.output.names, counts))

    def _capture(
        self, state: TrainState, device_batch: DeviceBatch, counts: Mapping[str, float]
    ) -> _CapturedStep:
        """Record the kernels of a step without running them."""
        inputs = {name: tensor.clone() for name, tensor in device_batch.tensors.items()}
        divisors = {name: torch.ones((), device=state.device) for name in counts}
        state.optimizer.zero_grad(set_to_none=True)

        def run() -> StepOutput:
            buffers = state.copy_buffers()
            with autocast(state.config.dtype, state.device):
                sums = state.learner(DeviceBatch(device_batch.batch, inputs), None)
            terms = {
                n: total / divisors[get_count_name(n)].clamp(min=1) for n, total in sums.items()
            }
            losses = [term for term in terms.values() if term.requires_grad]
            torch.stack(losses).sum().backward()
            return self._apply(state, {name: t.detach() for name, t in terms.items()}, buffers)

        graph, output = capture_graph(run, self._pool)
        return _CapturedStep(graph, inputs, divisors, output)


def names_with_targets(
    names: Sequence[str | None], counts: Mapping[str, float]
) -> tuple[str | None, ...]:
    """The names of the terms that have targets in this batch; None for the others."""
    return tuple(name if name and counts[get_count_name(name)] else None for name in names)


def _can_capture(state: TrainState, micro: Sequence[Batch]) -> bool:
    return (
        state.device.type == "cuda"
        and state.distributed.world_size == 1
        and len(micro) == 1
        and isinstance(micro[0], ArrayBatch)
        and find_joint_objective(state.learner) is None
        and all(isinstance(group["lr"], Tensor) for group in state.optimizer.param_groups)
    )


def _graph_key(state: TrainState, batch: Batch, tensors: Mapping[str, Tensor]) -> Key:
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in tensors.items())
    # layers may be unfrozen during a run
    trained = tuple(weight.requires_grad for weight in state.model.parameters())
    return shapes, trained, tuple(sorted(batch.counts))
