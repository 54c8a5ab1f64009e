"""How well images and captions find each other: recall in both directions, and by chance.

n images, c different captions.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cloze.metrics.ranking import find_ranks

CUTOFFS = (1, 5)
Ints = NDArray[np.int64]


def compute_recalls(
    similarities: NDArray[np.floating], captions: Ints, cutoffs: Sequence[int] = CUTOFFS
) -> dict[str, float]:
    """Recall@k of texts for images and of images for texts, from n c similarities.

    `captions` (n) is the caption of each image. A caption of several images has found one of them
    if any is among the first k. Wrong candidates with an equal score count as better.
    """
    of_images = find_ranks(similarities, captions)  # n
    is_right = captions[:, None] == np.arange(similarities.shape[1])  # n c
    best = np.where(is_right, similarities, -np.inf).max(0)
    of_texts = 1 + ((similarities >= best) & ~is_right).sum(0)  # c
    return _name_recalls(
        {k: (float((of_texts <= k).mean()), float((of_images <= k).mean())) for k in cutoffs}
    )


def compute_chance_recalls(captions: Ints, cutoffs: Sequence[int] = CUTOFFS) -> dict[str, float]:
    """The expected recalls of random rankings."""
    _, counts = np.unique(captions, return_counts=True)  # images of each caption
    found = {}
    for k in cutoffs:
        drawn = np.arange(min(k, len(captions)))[:, None]
        # the probability that none of the first k images is right
        missed = np.clip((len(captions) - counts - drawn) / (len(captions) - drawn), 0, 1).prod(0)
        found[k] = float(1 - missed.mean()), min(1.0, k / len(counts))
    return _name_recalls(found)


def _name_recalls(found: dict[int, tuple[float, float]]) -> dict[str, float]:
    """The mean of both directions, then each of them, by cutoff."""
    means = {f"recall_at_{k}": sum(both) / 2 for k, both in found.items()}
    return means | {
        f"{direction}_recall_at_{k}": value
        for k, both in found.items()
        for direction, value in zip(("text_to_image", "image_to_text"), both, strict=True)
    }
