"""The gradients of one global batch, however it is cut into micro-batches and over processes."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from cloze.objectives.core import B, counted_as, tokens_of
from cloze.train.guard import TrainingError
from cloze.train.keyed import keyed
from cloze.train.memory import SmallerBatchWarning, out_of_memory, pieces
from cloze.train.parallel import join_gradients, unjoined
from cloze.train.precision import precision
from cloze.train.state import TrainState

Counts = Mapping[str, float]


def cut(state: TrainState, group: Sequence[B]) -> list[B]:
    """The micro-batches of a step, none larger than the memory was found to hold."""
    # FSDP's processes must all take the same number of them, whatever a limit would make of each
    limit = state.limit if _can_begin_again(state) else None
    return [piece for batch in group for piece in pieces(batch, limit)]


def gradients(
    state: TrainState, micro: Sequence[B], counts: Counts, biggest: int
) -> dict[str, Tensor]:
    """Leave the gradient of the mean losses in the weights; return this process's part of each.

    `counts`, and `biggest`, the tokens of the largest micro-batch, are those of all processes.

    When the memory runs out, the gradients of this step are thrown away and it begins again with
    micro-batches half as large, now and from then on. Processes can only begin again together, and
    only while none has joined its gradients with the others'. So under DDP a size that has never
    fitted is tried with the joining put off; when a size fails that did fit, or FSDP's parts are
    under way, the run must be resumed.
    """
    parallel = state.team.world > 1
    if parallel and not (_can_begin_again(state) and biggest > state.proven):
        parts = _attempt(state, micro, counts, join=True)
        if parts is None:
            raise TrainingError(
                f"out of memory in step {state.progress.step + 1} of a parallel run, where "
                "the processes cannot begin a step again",
                fix="resume with smaller micro-batches or with gradient checkpointing",
            )
        return parts
    while True:
        parts = _attempt(state, micro, counts, join=False)
        failed, divisible = state.team.largest([parts is None, _divisible(micro)])
        if parts is not None and not failed:
            break
        biggest = _halve(state, int(divisible))
        micro = cut(state, micro)
    if parallel:
        join_gradients(state.learner, state.team)
    state.proven = max(state.proven, biggest)
    return parts


def _can_begin_again(state: TrainState) -> bool:
    return state.team.world == 1 or isinstance(state.learner, DistributedDataParallel)


def _attempt(
    state: TrainState, micro: Sequence[B], counts: Counts, *, join: bool
) -> dict[str, Tensor] | None:
    """All micro-batches forwards and backwards; None when the memory does not suffice."""
    try:
        return _accumulate(state, micro, counts, join=join)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return None  # and with the error go the tensors that its traceback holds


def _accumulate(
    state: TrainState, micro: Sequence[B], counts: Counts, *, join: bool
) -> dict[str, Tensor]:
    learner, config, device = state.learner, state.config, state.device
    parts: dict[str, Tensor] = {}
    for index, batch in enumerate(micro):
        joined = nullcontext() if join and index == len(micro) - 1 else unjoined(learner)
        with keyed(device, config.seed, state.progress.step, state.team.rank, index) as rng, joined:
            with precision(config.dtype, device):
                sums = learner(batch, rng)
            terms = {name: total / (counts[counted_as(name)] or 1) for name, total in sums.items()}
            losses = [term for term in terms.values() if term.requires_grad]
            # DDP and FSDP take the mean over the processes; what is wanted is the sum
            (torch.stack(losses).sum() * state.team.world).backward()
        for name, term in terms.items():
            if not counts[counted_as(name)]:
                continue  # no target in the whole batch, so no mean to speak of
            parts[name] = parts[name] + term.detach() if name in parts else term.detach()
    return parts


def _divisible(micro: Sequence[B]) -> int:
    """Tokens of the largest micro-batch that can still be cut."""
    return max((tokens_of(batch) for batch in micro if len(batch.lengths) > 1), default=0)


def _halve(state: TrainState, divisible: int) -> int:
    """Make room after a failure, and set the size to try next."""
    state.optimizer.zero_grad(set_to_none=True)  # what the failed attempt left is of no use
    if state.device.type == "cuda":
        torch.cuda.empty_cache()
    if not divisible:
        raise TrainingError(
            f"out of memory in step {state.progress.step + 1} with a single sequence at a time",
            fix="use shorter sequences, gradient checkpointing, bf16, FSDP or a smaller model",
        )
    state.limit = divisible // 2
    warnings.warn(
        f"out of memory: micro-batches of at most {state.limit:,} tokens from here on",
        SmallerBatchWarning,
        stacklevel=4,
    )
    return state.limit
