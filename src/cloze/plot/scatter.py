"""Scatter plots of named points, such as projected word vectors, without overlapping names."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloze.errors import InputError
from cloze.plot.axes import FONT, draw_heading, draw_text, is_drawable, text_width
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

NUM_COLORS = 6  # in chart.css
_TOP, _MARGIN = 34.0, 60.0
_HEIGHTS = (320.0, 760.0)
_RADIUS = 4.0
_STEPS = (7.0, 14.0, 24.0)  # distances of a name from its point


@dataclass(frozen=True, kw_only=True)
class Point:
    """A named point."""

    name: str
    x: float
    y: float
    color: int = 0
    bold: bool = False  # bold name, placed first


class _Rectangle(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: "_Rectangle") -> float:
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(across, 0.0) * max(down, 0.0)


@dataclass(frozen=True, kw_only=True)
class Scatter(Figure):
    """A scatter plot; both axes have the same scale, so that distances can be compared."""

    title: str
    points: Sequence[Point]
    detail: str = ""

    def __post_init__(self) -> None:
        for point in self.points:
            if not (is_drawable(point.x) and is_drawable(point.y)):
                raise InputError(
                    f"the position of {point.name!r} is not finite", fix="leave it out"
                )

    @property
    def width(self) -> float:
        return WIDE

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded."""
        return {
            "kind": "scatter",
            "title": self.title,
            "points": [{"name": point.name, "x": point.x, "y": point.y} for point in self.points],
        }

    def element(self) -> Element:
        """The plot as part of a page."""
        return Element("figure", self.svg(), class_="wide")

    def svg(self, *children: Element) -> Element:
        positions, height = self._pixel_positions()
        drawn = [*self._draw_points(positions), *self._draw_names(positions, height)]
        if not drawn:
            drawn = [draw_text("no values", WIDE / 2, height / 2, class_="muted middle")]
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            Element("g", *drawn, class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {', '.join(point.name for point in self.points)}",
        )

    def _pixel_positions(self) -> tuple[list[tuple[float, float]], float]:
        """The pixels of the points, and the height of the figure."""
        if not self.points:
            return [], _HEIGHTS[0]
        xs, ys = [point.x for point in self.points], [point.y for point in self.points]
        across, down = max(xs) - min(xs), max(ys) - min(ys)
        room = WIDE - 2 * _MARGIN
        scale = min(room / across if across else math.inf, _HEIGHTS[1] / down if down else math.inf)
        scale = scale if math.isfinite(scale) else 1.0
        height = min(max(down * scale, _HEIGHTS[0] - 2 * _MARGIN), _HEIGHTS[1])
        middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
        return [
            (
                WIDE / 2 + (point.x - middle_x) * scale,
                _TOP + _MARGIN / 2 + height / 2 - (point.y - middle_y) * scale,
            )
            for point in self.points
        ], _TOP + height + _MARGIN

    def _draw_points(self, positions: Sequence[tuple[float, float]]) -> Iterator[Element]:
        for point, (x, y) in zip(self.points, positions, strict=True):
            radius = _RADIUS + 1.5 if point.bold else _RADIUS
            css = f"mark c{point.color % NUM_COLORS}"
            yield Element("circle", Element("title", point.name), cx=x, cy=y, r=radius, class_=css)

    def _draw_names(
        self, positions: Sequence[tuple[float, float]], height: float
    ) -> Iterator[Element]:
        """Place each name where it overlaps least, bold names first."""
        taken = [_Rectangle(x - 5, y - 5, x + 5, y + 5) for x, y in positions]
        order = sorted(range(len(self.points)), key=lambda number: not self.points[number].bold)
        for number in order:
            point = self.points[number]
            wide = text_width(point.name) * (1.08 if point.bold else 0.95)
            choices = list(_candidate_boxes(*positions[number], wide))
            best = min(
                choices, key=lambda box: _overlap_cost(box, taken, positions[number], height)
            )
            taken.append(best)
            x, y = (best.left + best.right) / 2, best.bottom - 3.5
            weight = "650" if point.bold else None
            yield draw_text(point.name, x, y, class_="middle", font_weight=weight)


def _candidate_boxes(x: float, y: float, wide: float) -> Iterator[_Rectangle]:
    for step in _STEPS:
        for angle in range(0, 360, 45):
            across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            middle_x = x + across * (step + wide / 2)
            middle_y = y - down * (step + FONT / 2)
            yield _Rectangle(
                middle_x - wide / 2,
                middle_y - FONT * 0.6,
                middle_x + wide / 2,
                middle_y + FONT * 0.6,
            )


def _overlap_cost(
    box: _Rectangle, taken: Sequence[_Rectangle], position: tuple[float, float], height: float
) -> float:
    hidden = sum(box.overlap(other) for other in taken)
    inside = _Rectangle(0, _TOP - FONT, WIDE, height)
    outside = (box.right - box.left) * (box.bottom - box.top) - box.overlap(inside)
    nearest_x = min(max(position[0], box.left), box.right)
    nearest_y = min(max(position[1], box.top), box.bottom)
    return 10 * hidden + 20 * outside + math.hypot(nearest_x - position[0], nearest_y - position[1])
