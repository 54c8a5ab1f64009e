"""The context of a forward pass: its random numbers and its data type."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch

from cloze.train.config import DTYPE_NAMES

_AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16}


@contextmanager
def seed_rng(device: torch.device, *key: int) -> Iterator[torch.Generator]:
    """Seed torch's generators with `key` inside, and restore their state afterwards.

    Dropout draws from torch's global generators only. Keyed by (seed, step, rank, micro-batch), a
    resumed run draws the same numbers without any saved generator, and an evaluation between two
    steps has no influence. Draws that accept a generator use the one that is yielded.
    """
    seed = derive_seed(*key)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed is slow without a GPU
        else:
            torch.manual_seed(seed)
        yield torch.Generator(device).manual_seed(seed)


def derive_seed(*key: int) -> int:
    """The seed that belongs to a key, such as (seed, step, rank, micro-batch)."""
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])


def autocast(dtype: str, device: torch.device) -> AbstractContextManager[object]:
    """Mixed precision: weights and optimizer stay in float32.

    bfloat16 has float32's range, so losses need no scaling.
    """
    found = _AUTOCAST[DTYPE_NAMES[dtype]]
    return torch.autocast(device.type, dtype=found, enabled=found is not None)


def run_eagerly() -> AbstractContextManager[object]:
    """Run compiled modules as they are, for batches of other shapes."""
    return torch.compiler.set_stance("force_eager")
