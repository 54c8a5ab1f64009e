"""Line charts: several series over one axis, as one SVG that needs nothing else.

Colours tell series apart in a scheme that colour-blind people can read, and marks tell them apart
without any: the first line is plain, each further one carries a shape of its own.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, Literal, TypeAlias

from cloze.errors import InputError
from cloze.plot.axes import ROW, Box, grid, heading, label, legend, text_width, widest_label
from cloze.plot.line import Line, Look
from cloze.plot.picture import EDGE, NARROW, WIDE, Picture
from cloze.plot.scale import Scale, drawable
from cloze.plot.svg import Element, data_block

Style: TypeAlias = Literal["line", "faint", "reference"]

_HEIGHT = 280
_HEADING = 28
_TICKS = 5
_MARK = 10  # room for a word over the lines


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points in the order of x. A y that is None or not finite leaves a gap.

    `faint` is the noise behind a line, best given the same colour; `reference` is something to
    compare with: grey, dashed and not counted among the colours.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: Style = "line"
    colour: int | None = None  # 0, 1, … by default the next

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise InputError(
                f"series {self.name!r} has {len(self.x)} x and {len(self.y)} y",
                fix="give one y for each x",
            )

    @property
    def data(self) -> dict[str, Any]:
        return {"name": self.name, "x": _plain(self.x), "y": _plain(self.y)}


@dataclass(frozen=True, kw_only=True)
class LineChart(Picture):
    """One chart. The y axis reaches to the values of `include`, whatever the series do."""

    title: str
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    percent: bool = False  # y are shares of one
    log: bool = False  # the y axis; what is not above zero is left out
    include: Sequence[float] = ()
    note: str = ""
    wide: bool = False
    mark: tuple[float, str] | None = None  # an x that stands out, and why, in a word

    @property
    def width(self) -> float:
        return WIDE if self.wide else NARROW

    @property
    def data(self) -> dict[str, Any]:
        """Every number, unrounded; None where there is none."""
        return {
            "kind": "lines",
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "series": [series.data for series in self.series],
            **({"mark": list(self.mark)} if self.mark else {}),
        }

    def element(self) -> Element:
        """The chart as part of a page, with what the page's script shows under the pointer."""
        layout = self._layout
        hover = {
            "x": self.x_label,
            "percent": self.percent,
            "top": layout.box.top,
            "bottom": layout.box.bottom,
            "series": [
                {
                    "name": line.name,
                    "class": line.look.css,
                    "points": line.places(layout.x, layout.y),
                }
                for line in layout.lines
            ],
        }
        note = [Element("figcaption", self.note)] if self.note else []
        width = "wide" if self.wide else None
        return Element(
            "figure", self.svg(), data_block(hover), *note, class_=width, data_kind="lines"
        )

    def svg(self, *children: Element) -> Element:
        layout = self._layout
        box = layout.box
        behind_first = sorted(layout.lines, key=lambda line: line.look.style == "line")
        drawn = [part for line in behind_first for part in line.elements(layout.x, layout.y)]
        if not drawn:
            middle = (box.top + box.bottom) / 2
            drawn = [label("no values", box.width / 2, middle, class_="muted middle")]
        names = ", ".join(line.name for line in layout.lines)
        frame = grid(box, layout.x, layout.y, x_label=self.x_label, percents=self.percent)
        return Element(
            "svg",
            *children,
            heading(self.title, self.y_label),
            Element("g", *layout.legend),
            Element("g", *(frame if layout.lines else ()), *self._marked(layout)),
            Element("g", *drawn, class_="data"),
            class_="lines",
            viewBox=f"{-EDGE} {-EDGE} {box.width + 2 * EDGE} {box.height + 2 * EDGE}",
            role="img",
            aria_label=f"{self.title}: {names or 'no values'}",
        )

    def _marked(self, layout: "_Layout") -> Iterator[Element]:
        """A thin line across, with its word on top."""
        if self.mark is None or not layout.lines:
            return
        (place, word), box = self.mark, layout.box
        x = layout.x(place)
        told = Element("title", f"{word}: {self.x_label} {place:,g}")
        yield Element(
            "path", told, d=f"M{x:.1f} {box.top + 8:.1f}V{box.bottom:.1f}", class_="cross"
        )
        half = text_width(word) / 2
        middle = min(max(x, box.left + half), box.width - half)
        yield label(word, middle, box.top + 4, class_="muted middle")

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout.of(self)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where everything of a chart lies."""

    box: Box
    lines: Sequence[Line]
    legend: Sequence[Element]
    x: Scale
    y: Scale

    @classmethod
    def of(cls, chart: LineChart) -> "_Layout":
        width = chart.width
        lines = _lines(chart)
        # One line alone is what the heading says it is.
        named = [(line.name, line.look) for line in lines] if len(lines) > 1 else []
        rows = legend(named, width, _HEADING - 4)
        top = _HEADING + ROW * len(rows) + (_MARK if chart.mark else 0)
        bottom = _HEIGHT - (40 if chart.x_label else 24)
        ys = [y for line in lines for _, y in line.points if y is not None]
        ys += [value for value in chart.include if drawable(value, log=chart.log)]
        y = Scale.of(ys, start=bottom, end=top + 8, log=chart.log).rounded(_TICKS)
        left = 12 + widest_label(y, percents=chart.percent)
        right = width - 18
        xs = [x for line in lines for x, _ in line.points]
        xs += [chart.mark[0]] if chart.mark else []
        return cls(
            box=Box(width=width, height=_HEIGHT, left=left, top=top, right=right, bottom=bottom),
            lines=lines,
            legend=[part for row in rows for part in row],
            x=Scale.of(xs, start=left, end=right, whole=all(x == int(x) for x in xs)),
            y=y,
        )


def _lines(chart: LineChart) -> list[Line]:
    """Each series with the points that fit the axes; one without any is left out."""
    lines = []
    colours = count()
    for series in chart.series:
        points = [
            (float(x), float(y) if y is not None and drawable(y, log=chart.log) else None)
            for x, y in zip(series.x, series.y, strict=True)
            if drawable(x)
        ]
        colour = series.colour
        if colour is None and series.style != "reference":
            colour = next(colours)
        if any(y is not None for _, y in points):
            look = Look(style=series.style, colour=colour)
            lines.append(Line(name=series.name, look=look, points=points))
    return lines


def _plain(values: Sequence[float | None]) -> list[float | None]:
    return [
        None
        if value is None or not math.isfinite(value)
        else value
        if isinstance(value, int)
        else float(value)  # numpy's own kinds of float are not plain
        for value in values
    ]
