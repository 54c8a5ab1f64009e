"""Named dots on a plane, such as words by their vectors; names give way to one another."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloze.errors import InputError
from cloze.plot.axes import FONT, draw_heading, draw_text, is_drawable, text_width
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

NUM_COLORS = 6  # of chart.css
_TOP, _MARGIN = 34.0, 60.0
_HEIGHTS = (320.0, 760.0)
_RADIUS = 4.0
_STEPS = (7.0, 14.0, 24.0)  # how far a name may move from its dot


@dataclass(frozen=True, kw_only=True)
class Point:
    """One name at one place."""

    name: str
    x: float
    y: float
    color: int = 0
    bold: bool = False  # written bold, and first where there is room


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
    """Dots; a step across is as far as a step up, so that distances can be compared."""

    title: str
    points: Sequence[Point]
    detail: str = ""

    def __post_init__(self) -> None:
        for dot in self.points:
            if not (is_drawable(dot.x) and is_drawable(dot.y)):
                raise InputError(f"{dot.name!r} has no place", fix="leave it out")

    @property
    def width(self) -> float:
        return WIDE

    @property
    def data(self) -> dict[str, Any]:
        """Every number, unrounded."""
        return {
            "kind": "scatter",
            "title": self.title,
            "dots": [{"name": dot.name, "x": dot.x, "y": dot.y} for dot in self.points],
        }

    def element(self) -> Element:
        """The dots as part of a page."""
        return Element("figure", self.svg(), class_="wide")

    def svg(self, *children: Element) -> Element:
        places, height = self._pixel_positions()
        drawn = [*self._draw_points(places), *self._draw_names(places, height)]
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
            aria_label=f"{self.title}: {', '.join(dot.name for dot in self.points)}",
        )

    def _pixel_positions(self) -> tuple[list[tuple[float, float]], float]:
        """Where the dots lie, and how high the picture is."""
        if not self.points:
            return [], _HEIGHTS[0]
        xs, ys = [dot.x for dot in self.points], [dot.y for dot in self.points]
        across, down = max(xs) - min(xs), max(ys) - min(ys)
        room = WIDE - 2 * _MARGIN
        scale = min(room / across if across else math.inf, _HEIGHTS[1] / down if down else math.inf)
        scale = scale if math.isfinite(scale) else 1.0
        height = min(max(down * scale, _HEIGHTS[0] - 2 * _MARGIN), _HEIGHTS[1])
        middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
        return [
            (
                WIDE / 2 + (dot.x - middle_x) * scale,
                _TOP + _MARGIN / 2 + height / 2 - (dot.y - middle_y) * scale,
            )
            for dot in self.points
        ], _TOP + height + _MARGIN

    def _draw_points(self, places: Sequence[tuple[float, float]]) -> Iterator[Element]:
        for dot, (x, y) in zip(self.points, places, strict=True):
            radius = _RADIUS + 1.5 if dot.bold else _RADIUS
            css = f"mark c{dot.color % NUM_COLORS}"
            yield Element("circle", Element("title", dot.name), cx=x, cy=y, r=radius, class_=css)

    def _draw_names(
        self, places: Sequence[tuple[float, float]], height: float
    ) -> Iterator[Element]:
        """Each where it hides least, the strong ones first."""
        taken = [_Rectangle(x - 5, y - 5, x + 5, y + 5) for x, y in places]
        order = sorted(range(len(self.points)), key=lambda number: not self.points[number].bold)
        for number in order:
            dot = self.points[number]
            wide = text_width(dot.name) * (1.08 if dot.bold else 0.95)
            choices = list(_candidate_boxes(*places[number], wide))
            best = min(choices, key=lambda box: _cost(box, taken, places[number], height))
            taken.append(best)
            x, y = (best.left + best.right) / 2, best.bottom - 3.5
            weight = "650" if dot.bold else None
            yield draw_text(dot.name, x, y, class_="middle", font_weight=weight)


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


def _cost(
    box: _Rectangle, taken: Sequence[_Rectangle], place: tuple[float, float], height: float
) -> float:
    hidden = sum(box.overlap(other) for other in taken)
    inside = _Rectangle(0, _TOP - FONT, WIDE, height)
    outside = (box.right - box.left) * (box.bottom - box.top) - box.overlap(inside)
    nearest_x = min(max(place[0], box.left), box.right)
    nearest_y = min(max(place[1], box.top), box.bottom)
    return 10 * hidden + 20 * outside + math.hypot(nearest_x - place[0], nearest_y - place[1])
