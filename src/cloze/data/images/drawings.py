"""Drawings of colored shapes with exact captions, as many as needed.

A drawing is described by its color, shape, count and position, so that the agreement of an image
with a text can be measured exactly. It is computed from a seed and a number alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Pixels: TypeAlias = NDArray[np.uint8]  # y x 3

COLORS: Mapping[str, tuple[int, int, int]] = {
    "red": (214, 39, 40),
    "orange": (255, 140, 20),
    "yellow": (245, 208, 32),
    "green": (44, 140, 60),
    "blue": (31, 100, 200),
    "purple": (130, 60, 170),
    "brown": (120, 72, 40),
    "black": (25, 25, 25),
}
COUNTS = ("no", "one", "two", "three", "four")
POSITIONS: Mapping[str, tuple[float, float]] = {  # center of the drawing, x and y in [−1, 1]
    "": (0.0, 0.0),
    "on the left": (-0.45, 0.0),
    "on the right": (0.45, 0.0),
    "at the top": (0.0, -0.45),
    "at the bottom": (0.0, 0.45),
}
_PLURALS = {"cross": "crosses"}
_SAMPLES = 4  # per pixel in each direction, against jagged edges
_MAX_ANGLE = 0.25  # radians
_RADIUS, _HALF_SIDE, _BAR = 0.9, 0.77, 0.3  # of shapes in the square from −1 to 1


def _is_in_star(u: Floats, v: Floats) -> NDArray[np.bool_]:
    """Between the circles through the five tips and the five notches."""
    angle = (np.arctan2(u, -v) / (2 * np.pi / 5)) % 1  # position between two tips
    inner, tip = 0.42, np.pi / 5
    near = np.abs(angle - np.round(angle)) * 2 * np.pi / 5
    edge = (
        inner
        * np.sin(tip)
        / (np.sin(near) * (1 - inner * np.cos(tip)) + inner * np.sin(tip) * np.cos(near))
    )
    return np.hypot(u, v) <= edge


def _is_in_heart(u: Floats, v: Floats) -> NDArray[np.bool_]:
    """(x² + y² − 1)³ ≤ x²·y³."""
    x, y = 1.2 * u, 0.25 - 1.25 * v
    return (x**2 + y**2 - 1) ** 3 <= x**2 * y**3


def _is_in_cross(u: Floats, v: Floats) -> NDArray[np.bool_]:
    is_in_bar = np.minimum(abs(u), abs(v)) <= _BAR
    return is_in_bar & (np.maximum(abs(u), abs(v)) <= _RADIUS)


SHAPES: Mapping[str, Callable[[Floats, Floats], NDArray[np.bool_]]] = {  # v points down
    "circle": lambda u, v: np.hypot(u, v) <= _RADIUS,
    "square": lambda u, v: np.maximum(abs(u), abs(v)) <= _HALF_SIDE,
    "triangle": lambda u, v: (v <= _HALF_SIDE) & (abs(u) <= (v + _RADIUS) * np.tan(np.pi / 6)),
    "star": _is_in_star,
    "heart": _is_in_heart,
    "cross": _is_in_cross,
}


@dataclass(frozen=True)
class Drawing:
    """What is drawn; several shapes have no position."""

    color: str
    shape: str
    count: int = 1  # 1 … 4
    position: str = ""

    @property
    def caption(self) -> str:
        """The description, such as "a red heart on the left" or "two blue circles"."""
        if self.count == 1:
            article = "an" if self.color[0] in "aeiou" else "a"
            return f"{article} {self.color} {self.shape} {self.position}".rstrip()
        plural = _PLURALS.get(self.shape, f"{self.shape}s")
        return f"{COUNTS[self.count]} {self.color} {plural}"


def describe_drawing(seed: int, number: int) -> Drawing:
    """What drawing `number` shows."""
    rng = _make_generator(seed, number)
    return _draw_description(rng)


def make_drawing(seed: int, number: int, size: int = 64) -> tuple[Drawing, Pixels]:
    """Drawing `number` and its pixels."""
    rng = _make_generator(seed, number)
    drawing = _draw_description(rng)
    return drawing, render_drawing(drawing, rng, size)


def list_captions() -> list[str]:
    """The captions of all drawings, each once."""
    counts = [(count, "") for count in range(2, len(COUNTS))]
    kinds = [*((1, position) for position in POSITIONS), *counts]
    return [
        Drawing(color, shape, count, position).caption
        for color in COLORS
        for shape in SHAPES
        for count, position in kinds
    ]


def render_drawing(drawing: Drawing, rng: np.random.Generator, size: int = 64) -> Pixels:
    """The pixels, with random sizes, angles, positions and shades: size size 3."""
    axis = (np.arange(size * _SAMPLES) + 0.5) / (size * _SAMPLES) * 2 - 1
    y, x = np.meshgrid(axis, axis, indexing="ij")
    covered = np.zeros(x.shape, bool)
    for center_x, center_y, radius in _place_shapes(drawing, rng):
        angle = rng.uniform(-_MAX_ANGLE, _MAX_ANGLE)
        u, v = (x - center_x) / radius, (y - center_y) / radius
        cos, sin = np.cos(angle), np.sin(angle)
        covered |= SHAPES[drawing.shape](cos * u + sin * v, cos * v - sin * u)
    share = covered.reshape(size, _SAMPLES, size, _SAMPLES).mean((1, 3))[..., None]  # y x 1
    ink = np.clip(np.array(COLORS[drawing.color]) + rng.uniform(-15, 15, 3), 0, 255)
    paper = 255 - rng.uniform(0, 18, 3)
    return np.round(share * ink + (1 - share) * paper).astype(np.uint8)


def _place_shapes(drawing: Drawing, rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """Center and radius of each shape; they do not overlap."""
    if drawing.count == 1:
        x, y = np.array(POSITIONS[drawing.position]) + rng.uniform(-0.1, 0.1, 2)
        return [(x, y, rng.uniform(0.3, 0.45))]
    cells = [(x, y) for x in (-0.48, 0.48) for y in (-0.48, 0.48)]
    chosen = rng.permutation(len(cells))[: drawing.count]
    return [
        (cells[n][0] + rng.uniform(-0.08, 0.08), cells[n][1] + rng.uniform(-0.08, 0.08), radius)
        for n in chosen
        for radius in (rng.uniform(0.26, 0.36),)
    ]


def _draw_description(rng: np.random.Generator) -> Drawing:
    color, shape = rng.choice(list(COLORS)), rng.choice(list(SHAPES))
    count = int(rng.integers(1, len(COUNTS)))
    position = str(rng.choice(list(POSITIONS))) if count == 1 else ""
    return Drawing(str(color), str(shape), count, position)


def _make_generator(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, number], np.uint64)))
