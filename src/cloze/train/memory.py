"""Too little memory: compute activations twice, or cut the micro-batches smaller."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import OutOfMemoryError, nn
from torch.utils.checkpoint import checkpoint

from cloze.objectives.core import B, tokens_of

_SIGNS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")


class SmallerBatchWarning(UserWarning):
    """The memory did not suffice, and micro-batches are smaller from here on."""


@contextmanager
def recompute(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Gradient checkpointing: keep only each block's input, and compute the rest again backwards.

    Trades a third more work for most of the activations' memory (Chen et al. 2016). The blocks
    know nothing of it, and are as they were afterwards.
    """
    changed = list(blocks)
    for block in changed:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block in changed:
            del block.forward  # the class's own shows again


def out_of_memory(error: RuntimeError) -> bool:
    """Whether this is a device without room; libraries below torch say so in words only."""
    return isinstance(error, OutOfMemoryError) or any(sign in str(error) for sign in _SIGNS)


def pieces(batch: B, limit: int | None) -> list[B]:
    """The batch in parts of at most `limit` tokens, whole sequences in each.

    A single sequence is never cut, however long.
    """
    if limit is None or tokens_of(batch) <= limit or len(batch.lengths) == 1:
        return [batch]
    return [piece for half in batch.split(2) for piece in pieces(half, limit)]
