"""Random numbers that depend on what they are for and on nothing else.

Philox counts instead of remembering: any sample of any epoch has a generator of its own, whichever
process asks for it and wherever a run was resumed (Salmon et al. 2011).
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for; each has numbers of its own."""

    SAMPLING = 0  # documents into samples
    ORDER = 1  # of the samples of an epoch
    MASKING = 2


def make_generator(seed: int, epoch: int, purpose: Purpose, number: int = 0) -> np.random.Generator:
    """The generator of one sample, or of one epoch as a whole."""
    key = np.array([seed % 2**64, epoch], np.uint64)
    counter = np.array([0, 0, purpose, number], np.uint64)  # the low two count the draws
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
