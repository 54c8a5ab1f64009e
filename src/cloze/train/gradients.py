"""The gradients of a global batch, however it is split over micro-batches and processes.

First they are computed (`compute_gradients`), then applied (`apply_gradients`).
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cloze.objectives.core import B, get_count_name
from cloze.train.distributed import average_gradients, full_tensor, without_averaging
from cloze.train.forward_context import autocast, seed_rng
from cloze.train.guard import (
    USUAL_CLIP_RATIO,
    TrainingError,
    is_bad_step,
    max_bad_steps,
    step_optimizer_unless,
)
from cloze.train.joint_gradients import accumulate_joint_gradients, find_joint_objective
from cloze.train.memory import SmallerBatchWarning, is_out_of_memory, split_batch
from cloze.train.state import TrainState
from cloze.train.step import StepOutput

Counts = Mapping[str, float]


def split_batches(state: TrainState, group: Sequence[B]) -> list[B]:
    """The micro-batches of a step, none larger than fits into memory."""
    # with FSDP all processes must run the same number of micro-batches
    limit = state.max_micro_tokens if _can_repeat(state) else None
    return [part for batch in group for part in split_batch(batch, limit)]


def compute_gradients(
    state: TrainState, micro: Sequence[B], counts: Counts, max_tokens: int
) -> dict[str, Tensor]:
    """Compute the gradient of the mean losses, and return this process's part of each mean.

    `counts`, and `max_tokens`, the tokens of the largest micro-batch, are those of all processes.

    When memory runs out, the gradients of this step are discarded and it is repeated with
    micro-batches of half the size, now and from then on. Processes can only repeat a step together,
    and only before any of them has averaged its gradients with the others. So with DDP a size that
    has never fitted is tried without averaging; when a size fails that did fit before, or with
    FSDP, the run must be resumed.
    """
    parallel = state.distributed.world_size > 1
    if parallel and not (_can_repeat(state) and max_tokens > state.largest_fitting):
        parts = _try_gradients(state, micro, counts, average=True)
        if parts is None:
            raise TrainingError(
                f"out of memory in step {state.progress.step + 1} of a parallel run, where "
                "the processes cannot repeat a step",
                fix="resume with smaller micro-batches or with gradient checkpointing",
            )
        return parts
    while True:
        parts = _try_gradients(state, micro, counts, average=False)
        (failed,) = state.distributed.max_over_processes([parts is None])
        if parts is not None and not failed:
            break
        (max_divisible,) = state.distributed.max_over_processes([_largest_divisible(micro)])
        max_tokens = _halve_micro_batches(state, int(max_divisible))
        micro = split_batches(state, micro)
    if parallel:
        average_gradients(state.learner, state.distributed)
    state.largest_fitting = max(state.largest_fitting, max_tokens)
    return parts


def _can_repeat(state: TrainState) -> bool:
    return state.distributed.world_size == 1 or isinstance(state.learner, DistributedDataParallel)


def _try_gradients(
    state: TrainState, micro: Sequence[B], counts: Counts, *, average: bool
) -> dict[str, Tensor] | None:
    """Forward and backward of all micro-batches; None if memory runs out."""
    try:
        return _accumulate_gradients(state, micro, counts, average=average)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None  # frees the tensors that the traceback of the error refers to


def _accumulate_gradients(
    state: TrainState, micro: Sequence[B], counts: Counts, *, average: bool
) -> dict[str, Tensor]:
    joint = find_joint_objective(state.learner)
    if joint is not None:
        return accumulate_joint_gradients(state, joint, micro, counts, average=average)
    learner, config, device = state.learner, state.config, state.device
    parts: dict[str, Tensor] = {}
    for index, batch in enumerate(micro):
        is_averaged = average and index == len(micro) - 1
        averaging = nullcontext() if is_averaged else without_averaging(learner)
        with (
            seed_rng(
                device, config.seed, state.progress.step, state.distributed.rank, index
            ) as rng,
            averaging,
        ):
            with autocast(config.dtype, device):
                sums = learner(batch, rng)
            terms = {
                name: total / (counts[get_count_name(name)] or 1) for name, total in sums.items()
            }
            losses = [term for term in terms.values() if term.requires_grad]
            # DDP and FSDP average over the processes, but the sum is needed
            (torch.stack(losses).sum() * state.distributed.world_size).backward()
        for name, term in terms.items():
            if not counts[get_count_name(name)]:
                continue  # no target in the global batch, so there is no mean
            parts[name] = parts[name] + term.detach() if name in parts else term.detach()
    return parts


def _largest_divisible(micro: Sequence[B]) -> int:
    """Tokens of the largest micro-batch that can still be split."""
    return max((batch.size for batch in micro if len(batch.split(2)) > 1), default=0)


def _halve_micro_batches(state: TrainState, max_divisible: int) -> int:
    """Free memory after a failure, and return the size to try next."""
    state.optimizer.zero_grad(set_to_none=True)
    if state.device.type == "cuda":
        torch.cuda.empty_cache()
    if not max_divisible:
        raise TrainingError(
            f"out of memory in step {state.progress.step + 1} with a single sequence at a time",
            fix="use shorter sequences, gradient checkpointing, bfloat16, FSDP or a smaller model",
        )
    state.max_micro_tokens = max_divisible // 2
    warnings.warn(
        f"out of memory: micro-batches of at most {state.max_micro_tokens:,} tokens from here on",
        SmallerBatchWarning,
        stacklevel=4,
    )
    return state.max_micro_tokens


def apply_gradients(
    state: TrainState, parts: Mapping[str, Tensor], buffers: Sequence[Tensor]
) -> StepOutput:
    """Clip the gradients, check them and run the optimizer, unless the step is bad.

    `parts` are this process's parts of the means; `buffers` are the model's buffers before the
    step, which a bad step restores. Nothing is read from the device, and state is changed in place,
    so that a CUDA graph can capture it.
    """
    means = state.distributed.all_reduce(torch.stack(list(parts.values())))
    norm = full_tensor(nn.utils.clip_grad_norm_(state.model.parameters(), state.config.clip_norm))
    bad = _check_step(state, means, norm)
    step_optimizer_unless(bad, state.optimizer)
    for buffer, before in zip(state.model.buffers(), buffers, strict=True):
        buffer.copy_(torch.where(bad, before, buffer))
    state.optimizer.zero_grad(set_to_none=True)
    return StepOutput(tuple(parts), torch.cat([means, torch.stack([norm, bad.float()])]))


def _check_step(state: TrainState, means: Tensor, norm: Tensor) -> Tensor:
    """Whether to skip the step; after one bad step too many, all following ones are skipped."""
    clip = state.config.clip_norm
    usual = USUAL_CLIP_RATIO * clip if math.isfinite(clip) else 0.0
    bad = is_bad_step(means, norm, state.recent_norms, usual=usual)
    bad = bad | (state.bad_in_a_row >= max_bad_steps(state.config.guard))
    state.bad_in_a_row.add_(1).mul_(bad)
    later = torch.cat([state.recent_norms[1:], norm.view(1)])  # the norm of a bad step is not kept
    state.recent_norms.copy_(torch.where(bad, state.recent_norms, later))
    return bad
