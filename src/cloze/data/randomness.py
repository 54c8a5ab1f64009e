"""Random generators that depend only on seed, epoch, purpose and sample.

Philox is counter-based (Salmon et al. 2011): every sample of every epoch has its own generator,
which is the same in every process and after resuming.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are used for; each purpose has its own generators."""

    SAMPLING = 0  # splitting documents into samples
    ORDER = 1  # order of the samples of an epoch
    MASKING = 2
    LENGTH = 3  # lengths of segments of text
    IMAGES = 4  # captions and augmentation of images
    PAIRS = 5  # pairs made from a document


def make_generator(
    seed: int, epoch: int, purpose: Purpose, number: int = 0
) -> "np.random.Generator":  # quoted, because importing numpy.random takes time
    """The generator of one sample, or of one epoch as a whole."""
    key = np.array([seed % 2**64, epoch], np.uint64)
    counter = np.array([0, 0, purpose, number], np.uint64)  # the first two count the draws
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
