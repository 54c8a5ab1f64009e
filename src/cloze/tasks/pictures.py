"""Images as results: PNG files, grids, JSON."""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.data.images.decode import encode_png
from cloze.errors import InputError
from cloze.files import PathLike, expand_user, write_bytes
from cloze.results import Result

Pixels = NDArray[np.uint8]  # y x 3


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, and the seed that it was made from."""

    seed: int
    pixels: Pixels = field(repr=False)  # y x 3
    steps: list[Pixels] = field(default_factory=list, repr=False)  # as predicted, with keep_steps

    def to_png(self) -> bytes:
        """The image as a PNG file."""
        return encode_png(self.pixels)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; the PNG file is in base64."""
        height, width = self.pixels.shape[:2]
        image = base64.b64encode(self.to_png()).decode()
        return {"seed": self.seed, "width": width, "height": height, "png": image}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class DrawResult(Result):
    """The images of a text."""

    text: str
    pictures: list[Picture]

    record_columns = ("text", "seed", "width", "height")

    @property
    def pixels(self) -> Pixels:
        """The first image: y x 3."""
        return self.pictures[0].pixels

    def save(self, path: PathLike, *, columns: int | None = None) -> Path:
        """Write the image as a PNG file; several images side by side."""
        return save_grid(path, [one.pixels for one in self.pictures], columns)

    def save_steps(self, path: PathLike) -> Path:
        """Write the images after the steps as a PNG file, a row for each picture (`keep_steps`)."""
        steps = [step for one in self.pictures for step in one.steps]
        if not steps:
            raise InputError("the steps were not kept", fix="draw with keep_steps=True")
        return save_grid(path, steps, len(self.pictures[0].steps))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; PNG files are in base64."""
        return {"text": self.text, "pictures": [one.to_dict() for one in self.pictures]}

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each image."""
        found = ({"text": self.text, **one.to_dict()} for one in self.pictures)
        return [{name: one[name] for name in self.record_columns} for one in found]

    def _repr_html_(self) -> str:
        from html import escape

        text = escape(self.text, quote=True)
        images = "".join(
            f'<img src="data:image/png;base64,{base64.b64encode(one.to_png()).decode()}" '
            f'alt="{text}" title="seed {one.seed}" style="width: 8em; margin: 0 .4em .4em 0">'
            for one in self.pictures
        )
        return f'<figure style="margin: 0">{images}<figcaption>{text}</figcaption></figure>'


def save_grid(path: PathLike, pictures: Sequence[Pixels], columns: int | None = None) -> Path:
    """Write images side by side as a PNG file, in rows of `columns` (default: about a square)."""
    target = expand_user(path)
    if target.suffix.lower() != ".png":
        raise InputError(f"{path} does not end in .png", fix="images are written as PNG files")
    width = columns or math.ceil(len(pictures) ** 0.5)
    return write_bytes(target, encode_png(make_grid(pictures, width)))


def make_grid(pictures: Sequence[Pixels], columns: int) -> Pixels:
    """Images side by side, in rows of `columns`, on white."""
    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    grid = np.full((rows * height, min(columns, len(pictures)) * width, 3), 255, np.uint8)
    for n, one in enumerate(pictures):
        y, x = divmod(n, columns)
        grid[y * height : (y + 1) * height, x * width : (x + 1) * width] = one
    return grid
