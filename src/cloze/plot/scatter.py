"""Scatter plots of named points, such as projected word vectors, without overlapping names.

With its script, the point under the pointer, or along the arrow keys, shows its name and details.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from cloze.errors import InputError
from cloze.plot.axes import FONT, ROW, draw_heading, draw_text, is_drawable, text_width
from cloze.plot.line_chart import MARKERS
from cloze.plot.svg import MARGIN, NARROW, WIDE, Element, Figure, format_coordinate, json_script

NUM_COLORS = 6  # in chart.css
_TOP, _MARGIN = 34.0, 60.0
_HEIGHTS = (320.0, 760.0)
_NARROW_HEIGHT = 250.0  # of the points of a narrow plot, at most
_RADIUS = 4.0
_MARK = 1.5  # size of the shapes of groups, compared with those of line charts
_STEPS = (7.0, 14.0, 24.0)  # distances of a name from its point


@dataclass(frozen=True, kw_only=True)
class Point:
    """A named point."""

    name: str
    x: float
    y: float
    color: int = 0
    bold: bool = False  # bold name, placed first
    detail: str = ""  # shown for the point under the pointer


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

    script: ClassVar[str] = "scatter"

    title: str
    points: Sequence[Point]
    detail: str = ""
    legend: Sequence[str] = ()  # the meaning of each color; points then have a shape for each
    has_names: bool = True  # whether names are drawn beside the points
    wide: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        for point in self.points:
            if not (is_drawable(point.x) and is_drawable(point.y)):
                raise InputError(
                    f"the position of {point.name!r} is not finite", fix="leave it out"
                )

    @property
    def width(self) -> float:
        return WIDE if self.wide else NARROW

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded."""
        return {
            "kind": "scatter",
            "title": self.title,
            "points": [
                {"name": point.name, "x": point.x, "y": point.y}
                | ({"detail": point.detail} if point.detail else {})
                | ({"group": self.legend[point.color]} if self.legend else {})
                for point in self.points
            ],
        }

    def element(self) -> Element:
        """The plot as part of a page, with the data of its script."""
        positions, _ = self._pixel_positions()
        points = [
            {
                "name": point.name,
                "detail": point.detail,
                "group": self.legend[point.color] if self.legend else "",
                "at": [round(x, 1), round(y, 1)],
            }
            for point, (x, y) in zip(self.points, positions, strict=True)
        ]
        note = [Element("figcaption", self.note)] if self.note else []
        return Element(
            "figure",
            self.svg(),
            json_script({"points": points}),
            *note,
            class_="wide" if self.wide else None,
            data_kind="scatter",
        )

    def svg(self, *children: Element) -> Element:
        positions, height = self._pixel_positions()
        drawn = list(self._draw_points(positions))
        if self.has_names:
            drawn += self._draw_names(positions, height)
        if not drawn:
            drawn = [draw_text("no values", self.width / 2, height / 2, class_="muted middle")]
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            Element("g", *self._draw_legend()),
            Element("g", *drawn, class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {self.width + 2 * MARGIN} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {', '.join(point.name for point in self.points)}"
            if self.has_names
            else f"{self.title}: {len(self.points)} points",
        )

    def _pixel_positions(self) -> tuple[list[tuple[float, float]], float]:
        """The pixels of the points, and the height of the figure."""
        if not self.points:
            return [], _HEIGHTS[0]
        top = _TOP + (ROW * len(self._legend_rows()) if self.legend else 0)
        xs, ys = [point.x for point in self.points], [point.y for point in self.points]
        across, down = max(xs) - min(xs), max(ys) - min(ys)
        room, highest = self.width - 2 * _MARGIN, _HEIGHTS[1] if self.wide else _NARROW_HEIGHT
        scale = min(room / across if across else math.inf, highest / down if down else math.inf)
        scale = scale if math.isfinite(scale) else 1.0
        height = min(max(down * scale, _HEIGHTS[0] - 2 * _MARGIN), highest)
        middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
        return [
            (
                self.width / 2 + (point.x - middle_x) * scale,
                top + _MARGIN / 2 + height / 2 - (point.y - middle_y) * scale,
            )
            for point in self.points
        ], top + height + _MARGIN

    def _legend_rows(self) -> list[list[tuple[int, float]]]:
        """The colors in each row of the legend, each with its x."""
        rows: list[list[tuple[int, float]]] = []
        x = self.width
        for color, name in enumerate(self.legend):
            needed = 16 + text_width(name) + 14
            if not rows or x + needed > self.width:
                rows.append([])
                x = 0.0
            rows[-1].append((color, x))
            x += needed
        return rows

    def _draw_legend(self) -> Iterator[Element]:
        for number, row in enumerate(self._legend_rows()):
            middle = _TOP - 4 + ROW * (number + 0.5)
            for color, x in row:
                yield _draw_mark(x + 6, middle, color)
                yield draw_text(self.legend[color], x + 16, middle + 4)

    def _draw_points(self, positions: Sequence[tuple[float, float]]) -> Iterator[Element]:
        for point, (x, y) in zip(self.points, positions, strict=True):
            title = Element(
                "title", f"{point.name}: {point.detail}" if point.detail else point.name
            )
            if self.legend:
                yield _draw_mark(x, y, point.color, title)
                continue
            radius = _RADIUS + 1.5 if point.bold else _RADIUS
            css = f"mark c{point.color % NUM_COLORS}"
            yield Element("circle", title, cx=x, cy=y, r=radius, class_=css)

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
                choices,
                key=lambda box: _overlap_cost(box, taken, positions[number], (self.width, height)),
            )
            taken.append(best)
            x, y = (best.left + best.right) / 2, best.bottom - 3.5
            weight = "650" if point.bold else None
            yield draw_text(point.name, x, y, class_="middle", font_weight=weight)


def _draw_mark(x: float, y: float, color: int, *children: Element) -> Element:
    """A point in the color and the shape of its group."""
    shape = MARKERS[1 + color % (len(MARKERS) - 1)]
    where = f"translate({format_coordinate(x)} {format_coordinate(y)}) scale({_MARK})"
    return Element(
        "path", *children, d=shape, class_=f"mark c{color % NUM_COLORS}", transform=where
    )


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
    box: _Rectangle,
    taken: Sequence[_Rectangle],
    position: tuple[float, float],
    size: tuple[float, float],
) -> float:
    hidden = sum(box.overlap(other) for other in taken)
    inside = _Rectangle(0, _TOP - FONT, *size)
    outside = (box.right - box.left) * (box.bottom - box.top) - box.overlap(inside)
    nearest_x = min(max(position[0], box.left), box.right)
    nearest_y = min(max(position[1], box.top), box.bottom)
    return 10 * hidden + 20 * outside + math.hypot(nearest_x - position[0], nearest_y - position[1])
