"""Randomness that needs no memory: every draw follows from a key."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def keyed(device: torch.device, *key: int) -> Iterator[torch.Generator]:
    """Randomness inside follows from `key` alone; what was outside is there again afterwards.

    Dropout draws from torch's global generators and from nothing else, so these are lent for the
    time inside. Keyed by (seed, step, process, micro-batch), a resumed run draws what the straight
    one drew with no generator saved, and an evaluation between two steps disturbs nothing. The
    generator handed over is for draws that can be given one.
    """
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield torch.Generator(device).manual_seed(seed)
