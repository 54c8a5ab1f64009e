"""Vectors as rows of colored cells: red for positive, white for zero, blue for negative values.

Similar words have similar columns. Beyond ±2, or another limit, the color is saturated. White may
be another value than zero, such as 0.5 of gates.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.errors import InputError
from cloze.plot.axes import ROW, draw_heading, draw_text, text_width
from cloze.plot.format import shorten_text
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

LIMIT = 2.0
_BLUE, _WHITE, _RED = (33, 102, 172), (255, 255, 255), (178, 24, 43)
_HEIGHT, _LOW = 26.0, 12.0  # of a row; if there are many rows
_MANY = 20  # from this number on, rows are lower and touch
_TOP = 54.0
_KEY = 160.0  # width of the color scale
_MAX_RECTANGLES = 8000  # more cells are drawn as paths of 32 colors, which are much shorter
_LEVELS = 16  # of each sign
_LONGEST = 40  # characters of a name


@dataclass(frozen=True, kw_only=True)
class VectorHeatmap(Figure):
    """A row of cells for each name."""

    title: str
    rows: Sequence[str]
    values: Sequence[Sequence[float]]
    limit: float = LIMIT  # value of the most saturated color
    unit: str = " standard deviations"
    center: float = 0.0  # value of white

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.values}
        if len(self.rows) != len(self.values) or len(widths) != 1 or 0 in widths:
            raise InputError(
                f"{len(self.rows)} names, and {len(self.values)} rows of "
                f"{' and '.join(map(str, sorted(widths))) or 'no'} numbers",
                fix="pass one name per row, and rows of the same length",
            )

    @property
    def width(self) -> float:
        return WIDE

    @property
    def data(self) -> dict[str, Any]:
        return {
            "kind": "cells",
            "title": self.title,
            "rows": list(self.rows),
            "values": [list(row) for row in self.values],
        }

    def element(self) -> Element:
        """The heatmap as part of a page."""
        return Element("figure", self.svg(), class_="wide")

    def svg(self, *children: Element) -> Element:
        height = _TOP + self._height * len(self.rows)
        return Element(
            "svg",
            *children,
            draw_heading(self.title, ""),
            Element("g", *_draw_scale(self.limit, self.unit, self.center)),
            Element("g", *self._draw_cells(), class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {len(self.rows)} rows of {len(self.values[0])} cells",
        )

    @property
    def _height(self) -> float:
        return _HEIGHT if len(self.rows) < _MANY else _LOW

    def _draw_cells(self) -> Iterator[Element]:
        # one pixel higher if rows touch, for the same reason as below
        tall, gap = self._height, 3 if self._height == _HEIGHT else -1
        names = [shorten_text(name, _LONGEST) for name in self.rows]
        left = 10 + max(map(text_width, names))
        cell = (WIDE - left) / len(self.values[0])
        for number, (name, values) in enumerate(zip(names, self.values, strict=True)):
            top = _TOP + number * tall
            yield draw_text(name, left - 8, top + tall / 2 + 3, class_="end")
            if len(self.rows) * len(values) > _MAX_RECTANGLES:
                yield from self._draw_paths(values, left, top, (cell, tall - gap))
                continue
            for column, value in enumerate(values):
                # one pixel wider, so that no background is visible between two cells
                last = column == len(values) - 1
                yield Element(
                    "rect",
                    x=left + column * cell,
                    y=top,
                    width=cell if last else cell + 1,
                    height=tall - gap,
                    fill=cell_color(value - self.center, self.limit),
                )

    def _draw_paths(
        self, values: Sequence[float], left: float, top: float, size: tuple[float, float]
    ) -> Iterator[Element]:
        """The cells of a row, those of the same color in one path."""
        width, height = size
        paths: dict[str, list[str]] = {}
        for column, value in enumerate(values):
            level = math.nan
            if math.isfinite(value):
                level = round((value - self.center) / self.limit * _LEVELS)
            color = cell_color(level * self.limit / _LEVELS, self.limit)
            paths.setdefault(color, []).append(f"M{left + column * width:.1f} {top:.0f}")
        wide = min(width + 0.5, width * 2)  # no background is visible between two cells
        outline = f"h{wide:.1f}v{height:.0f}h-{wide:.1f}z"
        for color, starts in paths.items():
            path = Element("path", d="".join(start + outline for start in starts), class_="cells")
            yield Element("g", path, fill=color)


def cell_color(value: float, limit: float = LIMIT) -> str:
    """The CSS color of a value; grey for NaN and infinity."""
    if not math.isfinite(value):
        return "#999999"
    saturation = min(abs(value) / limit, 1.0)
    end = _RED if value > 0 else _BLUE
    mixed = (round(w + (e - w) * saturation) for w, e in zip(_WHITE, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _draw_scale(limit: float, unit: str, center: float) -> Iterator[Element]:
    steps = 40
    low, high = center - limit, center + limit
    yield draw_text(f"{low:g}".replace("-", "−"), 0, ROW + 18, class_="muted")
    for step in range(steps):
        value = limit * (2 * step / (steps - 1) - 1)
        yield Element(
            "rect",
            x=22 + step * _KEY / steps,
            y=ROW + 8,
            width=_KEY / steps + 0.5,
            height=12,
            fill=cell_color(value, limit),
        )
    yield draw_text(f"{high:g}{unit}", 28 + _KEY, ROW + 18, class_="muted")
