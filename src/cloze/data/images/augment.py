"""Random changes of images: mirroring, shifts, zoom and colors, computed on the images' device.

What changes is drawn on the CPU from seed and step alone (`Augmentation.draw_changes`), so that a
resumed run sees the same images; `apply_changes` computes them, also inside of a CUDA graph.
b batch, c channels, y x positions.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.data.randomness import Purpose, make_generator

if TYPE_CHECKING:
    from torch import Tensor

Changes: TypeAlias = NDArray[np.float32]
"""b 4: mirror, zoom, right, down; b 7 with brightness, contrast and saturation."""
_MOVES, _COLORS = 4, 3


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How much images are changed at random; nothing by default."""

    flip_prob: float = 0.0  # probability that an image is mirrored
    shift: float = 0.0  # greatest shift, as a fraction of the width
    zoom: float = 0.0  # greatest change of the size, as a fraction
    color_jitter: float = 0.0  # greatest change of brightness, contrast and saturation

    @property
    def is_active(self) -> bool:
        """Whether anything may change."""
        return any((self.flip_prob, self.shift, self.zoom, self.color_jitter))

    def draw_changes(self, count: int, seed: int, step: int, size: int) -> Changes:
        """The changes of each of the images of a step.

        Args:
            count: number of images.
            seed: the seed of the run.
            step: the number of the batch.
            size: width and height in pixels: shifts are by whole pixels.
        """
        rng = make_generator(seed, step, Purpose.IMAGES, 1)
        drawn = rng.uniform(-1, 1, (count, _MOVES + _COLORS))
        mirror = np.where((drawn[:, 0] + 1) / 2 < self.flip_prob, -1.0, 1.0)
        zoom = (1 + self.zoom) ** drawn[:, 1]
        shift = np.round(drawn[:, 2:4] * self.shift * size) / size
        columns = [mirror, zoom, shift]
        if self.color_jitter:
            columns.append(drawn[:, _MOVES:] * self.color_jitter)
        return np.column_stack(columns).astype(np.float32)


def apply_changes(images: "Tensor", changes: "Tensor") -> "Tensor":
    """Change images with values in [−1, 1], as `Augmentation.draw_changes` says: b 3 y x.

    What a shift uncovers has the colors of the border.
    """
    moved = _move(images, changes)
    return moved if changes.shape[1] == _MOVES else _change_colors(moved, changes[:, _MOVES:])


def _move(images: "Tensor", changes: "Tensor") -> "Tensor":
    """Mirror, zoom around the center, and shift to the right and down."""
    import torch
    from torch.nn import functional as F

    mirror, zoom, right, down = changes[:, :_MOVES].to(images.dtype).unbind(1)
    none = torch.zeros_like(zoom)
    # where each pixel comes from, in coordinates from −1 to 1
    rows = [
        torch.stack([mirror / zoom, none, -2 * right * mirror / zoom], 1),
        torch.stack([none, 1 / zoom, -2 * down / zoom], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _change_colors(images: "Tensor", colors: "Tensor") -> "Tensor":
    """Brightness, contrast and saturation, in this order."""
    brightness, contrast, saturation = colors.to(images.dtype)[:, :, None, None, None].unbind(1)
    images = images + brightness  # b 3 y x
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + (images - mean) * (1 + contrast)
    red, green, blue = images.split(1, 1)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return (luma + (images - luma) * (1 + saturation)).clamp(-1, 1)
