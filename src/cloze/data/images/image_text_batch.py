"""Batches of images and captions that a loss compares with each other.

b images of a part, g those of the whole batch.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cloze.data.images.image_set import ImageBatch, ImageBatches
from cloze.data.pair_batch import PairLayout

CLIP_LOSS = "clip"


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageTextBatch(ImageBatch):
    """Images with captions, a part of a batch, and the layout of the whole batch.

    Captions are the anchors of the layout, images the positives.
    """

    layout: PairLayout
    rows: NDArray[np.int64]  # b: the row of each image in the layout

    @property
    def vectors(self) -> NDArray[np.int64]:
        """The indices of the vectors of the part in those of the batch: captions, then images."""
        return np.concatenate([self.rows, len(self.layout) + self.rows])

    @property
    def num_vectors(self) -> int:
        """Number of vectors of the whole batch."""
        return self.layout.num_vectors

    def select(self, chosen: slice) -> Self:
        """The part with some of the images."""
        return replace(super().select(chosen), rows=self.rows[chosen])


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageTextBatches(ImageBatches):
    """Batches whose images and captions are compared with each other."""

    def batch(self, number: int) -> ImageTextBatch:
        """Batch `number` of the run; captions that differ only by keywords count as equal."""
        found = super().batch(number)
        chosen = found.sample_ids
        _, captions = np.unique([self.data.captions[n] for n in chosen], return_inverse=True)
        _, images = np.unique(chosen, return_inverse=True)
        layout = PairLayout.from_rows(np.stack([captions, len(chosen) + images], 1))
        return ImageTextBatch(**vars(found), layout=layout, rows=np.arange(len(chosen)))

    def make_parts(
        self, number: int, part_size: int, *, rank: int = 0, world_size: int = 1
    ) -> list[ImageTextBatch]:
        """The parts of batch `number` that one process computes, of up to `part_size` images."""
        own = self.batch(number).select(slice(rank, None, world_size))
        return list(own.split(-(-own.size // part_size)))
