"""Gradients of a loss that compares all sequences of a batch, in the memory of a part of it.

Gradient caching (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory
Limited Setup"): first the vectors of all parts are computed without a graph, then the loss of all
vectors and its gradient with respect to each of them. In a second pass each part is computed again,
with the same dropout, and receives the gradient of its own vectors. By the chain rule the gradients
of the weights are those of one large batch, exactly. A batch that fits as one part needs no second
pass.

Parts are the micro-batches of a step. So when memory runs out, parts become smaller, and the loss
stays the same. Several processes compute the loss of the vectors of all of them.

A loss may have weights of its own, such as a learned temperature. Every process computes their
whole gradient; it is added with its last part, where the gradients of processes are averaged.

v vectors of the global batch, b those of a part, d their size.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from cloze.objectives.core import JointObjective, JointOutput, copy_to_device, get_count_name
from cloze.train.distributed import without_averaging
from cloze.train.forward_context import autocast, seed_rng
from cloze.train.memory import is_out_of_memory
from cloze.train.state import TrainState


def find_joint_objective(learner: nn.Module) -> JointObjective | None:
    """The objective of a learner, if its loss compares all sequences of a batch."""
    inner = getattr(learner, "module", learner)  # DDP wraps the learner
    objective = getattr(inner, "objective", None)
    return objective if isinstance(objective, JointObjective) else None


def accumulate_joint_gradients(
    state: TrainState,
    objective: JointObjective,
    parts: Sequence[Any],
    counts: Mapping[str, float],
    *,
    average: bool,
) -> dict[str, Tensor]:
    """Compute the gradients of a step; returns this process's part of the mean of each term."""
    joint = _JointStep(state, objective, parts)
    (most,) = state.distributed.max_over_processes([len(parts)])
    with _agree_on_memory(state):
        if most == 1:  # its graph is kept
            with joint.seed(0) as rng, _average_if(state, average), joint.autocast():
                outputs = [state.learner(parts[0], rng)]
            own = [outputs[0].vectors.detach()]
        else:
            outputs, own = [], joint.embed_parts()
    means, gradients, weight_gradients = joint.compute_loss(own, counts)
    world_size = state.distributed.world_size
    for index, (part, gradient) in enumerate(zip(parts, gradients, strict=True)):
        is_averaged = average and index == len(parts) - 1
        with joint.seed(index) as rng, _average_if(state, is_averaged):
            with joint.autocast():
                output: JointOutput = outputs[index] if outputs else state.learner(part, rng)
            terms = {
                name: total / (counts[get_count_name(name)] or 1)
                for name, total in output.terms.items()
            }
            losses = [term for term in terms.values() if term.requires_grad]
            # the gradient of this number is that of the loss, and DDP averages over processes
            surrogates = [(output.vectors * gradient).sum()]
            if index == len(parts) - 1:
                pairs = zip(output.loss_weights, weight_gradients, strict=True)
                surrogates += [(weight * found).sum() / world_size for weight, found in pairs]
            (torch.stack([*surrogates, *losses]).sum() * world_size).backward()
        for name, term in terms.items():
            if counts[get_count_name(name)]:
                means[name] = means[name] + term.detach() if name in means else term.detach()
    return means


class _JointStep:
    """The parts of one process in one step."""

    def __init__(self, state: TrainState, objective: JointObjective, parts: Sequence[Any]) -> None:
        self._state, self._objective, self._parts = state, objective, parts

    def seed(self, index: int) -> AbstractContextManager[torch.Generator]:
        """The random numbers of a part: the same in both passes."""
        state = self._state
        key = (state.config.seed, state.progress.step, state.distributed.rank, index)
        return seed_rng(state.device, *key)

    def autocast(self) -> AbstractContextManager[object]:
        """The precision of a forward pass."""
        return autocast(self._state.config.dtype, self._state.device)

    def embed_parts(self) -> list[Tensor]:
        """The vectors of each part (b d), without a graph.

        A compiled model runs as in the second pass, because without gradients it would be another
        program, whose dropout may draw other numbers; the graph of each part is freed at once.
        """
        model, found = self._state.model, []
        for index, part in enumerate(self._parts):
            with self.seed(index), self.autocast(), torch.set_grad_enabled(_is_compiled(model)):
                found.append(self._objective.embed(model, part).detach())
        return found

    def compute_loss(
        self, own: list[Tensor], counts: Mapping[str, float]
    ) -> tuple[dict[str, Tensor], list[Tensor], list[Tensor]]:
        """This process's part of the means, and the gradients of the loss.

        They are those of the vectors of each part, and of the weights of the loss itself.
        """
        device, distributed = self._state.device, self._state.distributed
        indices = [copy_to_device(part.vectors, device) for part in self._parts]
        vectors = own[0].new_zeros(self._parts[0].num_vectors + 1, own[0].shape[1])
        for index, found in zip(indices, own, strict=True):
            vectors.index_copy_(0, index % len(vectors), found)  # −1: the last row, not used
        vectors = vectors[:-1]
        # every vector is that of one process, and zero in the others: the sum gathers them exactly
        vectors = distributed.all_reduce(vectors.contiguous()).detach().requires_grad_()
        weights = tuple(
            one.detach().requires_grad_()
            for one in self._objective.get_loss_weights(self._state.model)
        )
        terms = self._objective.compute_loss(vectors, self._parts[0], weights)
        means = {name: total / counts[get_count_name(name)] for name, total in terms.items()}
        loss = torch.stack([mean for mean in means.values() if mean.requires_grad]).sum()
        gradient, *weight_gradients = torch.autograd.grad(loss, (vectors, *weights))
        gradient = torch.cat([gradient, torch.zeros_like(gradient[:1])])
        # all processes compute the same loss, and what they report is added
        shares = {name: mean.detach() / distributed.world_size for name, mean in means.items()}
        own_gradients = [gradient[index % len(gradient)] for index in indices]
        return shares, own_gradients, weight_gradients


def _is_compiled(model: nn.Module) -> bool:
    return any(getattr(part, "_compiled_call_impl", None) is not None for part in model.modules())


@contextmanager
def _agree_on_memory(state: TrainState) -> Iterator[None]:
    """If one process runs out of memory, all do: the others would wait for its vectors."""
    failed: RuntimeError | None = None
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        failed = error
    (anywhere,) = state.distributed.max_over_processes([failed is not None])
    if anywhere:
        raise torch.OutOfMemoryError("out of memory in the first pass") from None


def _average_if(state: TrainState, is_averaged: bool) -> AbstractContextManager[object]:
    """The gradients of several parts are averaged over the processes once, with the last one."""
    return nullcontext() if is_averaged else without_averaging(state.learner)
