"""Memorization: whether samples of a model are copies of its training images.

The distance of each sample to its nearest training image is compared with that of images that were
held out: both are as near to the training images if the model has learned what they have in
common. n samples, m training images, d numbers of an image or of its features.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.errors import InputError

Floats = NDArray[np.float64]
_CHUNK = 1 << 22  # distances that are computed at a time


class Nearest(NamedTuple):
    """The nearest reference of each vector."""

    distances: Floats  # n, Euclidean
    indices: NDArray[np.int64]  # n


@dataclass(frozen=True, kw_only=True, eq=False)
class Memorization:
    """How near samples are to training images, compared with images that were held out."""

    ratio: float  # of the median distances: 1 is as held-out images, 0 a copy
    copies: float  # fraction of samples nearer than `threshold` times the median of held-out ones
    held_out_copies: float  # the same fraction of held-out images
    threshold: float
    distance: float  # median of the samples
    held_out_distance: float  # median of the held-out images
    nearest: Nearest = field(repr=False)  # training images of the samples

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, without the distance of each sample."""
        found = asdict(self)
        found.pop("nearest")
        return found


def measure_memorization(
    samples: ArrayLike, held_out: ArrayLike, training: ArrayLike, *, threshold: float = 0.5
) -> Memorization:
    """Compare the distances of samples and of held-out images to their nearest training images.

    Args:
        samples: images of the model, as vectors of pixels or of features: n d.
        held_out: images that the model was not trained on: k d.
        training: the images that it was trained on: m d.
        threshold: a copy is nearer than this fraction of the median distance of held-out images.
    """
    found, others = find_nearest(samples, training), find_nearest(held_out, training)
    middle, other = float(np.median(found.distances)), float(np.median(others.distances))
    return Memorization(
        ratio=middle / other if other else float("inf") if middle else 1.0,
        copies=float((found.distances < threshold * other).mean()),
        held_out_copies=float((others.distances < threshold * other).mean()),
        threshold=threshold,
        distance=middle,
        held_out_distance=other,
        nearest=found,
    )


def find_nearest(vectors: ArrayLike, references: ArrayLike) -> Nearest:
    """The nearest reference of each vector, by Euclidean distance: n d, m d -> n."""
    rows, others = (_flatten(one) for one in (vectors, references))
    if rows.shape[1] != others.shape[1]:
        raise InputError(
            f"vectors of {rows.shape[1]} and {others.shape[1]} numbers cannot be compared",
            fix="use images of the same size, or the same features",
        )
    center = others.mean(0)  # smaller numbers, less cancellation in ‖a‖² + ‖b‖² − 2·a·b
    rows, others = rows - center, others - center
    squares = np.square(others).sum(1)  # m
    size = max(1, _CHUNK // len(others))
    indices = np.concatenate(
        [
            (squares - 2 * rows[first : first + size] @ others.T).argmin(1)
            for first in range(0, len(rows), size)
        ]
    )
    gaps = np.concatenate(
        [
            np.square(rows[first : first + size] - others[indices[first : first + size]]).sum(1)
            for first in range(0, len(rows), size)
        ]
    )
    return Nearest(np.sqrt(gaps, dtype=np.float64), indices)


def _flatten(given: ArrayLike) -> NDArray[np.float32]:
    found = np.asarray(given, np.float32)
    if not len(found):
        raise InputError("there are no images to compare", fix="pass one or more")
    return found.reshape(len(found), -1)
