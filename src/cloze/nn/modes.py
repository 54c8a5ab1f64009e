"""Whether modules learn or are only asked."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Without dropout, and afterwards each part as it was: models are asked while they learn too.

    Parts that are frozen may stand otherwise than the rest, so one flag for all would not do.
    """
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training
