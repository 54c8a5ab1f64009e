"""Line charts: several series over one x axis, as a self-contained SVG.

The colors are distinguishable for color-blind people, and so are the lines without them: the first
line is plain, and each further one has its own marker shape.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, groupby
from typing import Any, Literal, TypeAlias

from cloze.errors import InputError
from cloze.plot.axes import (
    ROW,
    PlotArea,
    Scale,
    draw_grid,
    draw_heading,
    draw_text,
    is_drawable,
    max_label_width,
    text_width,
)
from cloze.plot.svg import MARGIN, NARROW, WIDE, Element, Figure, format_coordinate, json_script

Style: TypeAlias = Literal["line", "faint", "reference"]

_HEIGHT = 280
_HEADING = 28
_TICKS = 5
_MARKER = 10  # pixels for a word above the lines
_SAMPLE = 24  # width of the line sample in the legend
_LONGEST = 60  # characters of a name in the legend
Point: TypeAlias = tuple[float, float | None]  # None is a gap

# Paths around (0, 0). The first color has no marker: a single line does not need one.
MARKERS = (
    "",
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "M-3 -3h6v6h-6z",
    "M0 -4L4 3H-4z",
    "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
    "M0 4L-4 -3H4z",
)
_SEGMENTS = 400  # of a long line, about one for every two pixels
_MAX_MARKERS = 30  # per line


@dataclass(frozen=True, kw_only=True)
class LineStyle:
    """The style of a line, in the chart and in the legend."""

    kind: str  # line, faint or reference
    color: int | None = None  # None is grey

    @property
    def css(self) -> str:
        if self.color is None:
            return self.kind
        again = " again" if self.color >= len(MARKERS) else ""
        return f"{self.kind} c{self.color % len(MARKERS)}{again}"

    @property
    def marker(self) -> str:
        """The path of its marker, or an empty string."""
        marked = self.kind == "line" and self.color is not None
        return MARKERS[(self.color or 0) % len(MARKERS)] if marked else ""


@dataclass(frozen=True, kw_only=True)
class DrawnLine:
    """The points of a line that can be drawn, and its style."""

    name: str
    style: LineStyle
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()  # x, low and high end of an interval

    def elements(self, x: Scale, y: Scale) -> Iterator[Element]:
        """The band, the line, then its markers."""
        if self.band:
            lower = [(a, low) for a, low, _ in self.band]
            upper = [(a, high) for a, _, high in reversed(self.band)]
            color = self.style.css.replace("line", "band", 1)
            yield Element("path", d=f"{_path([*lower, *upper], x, y)}Z", class_=color)
        runs = [list(run) for real, run in groupby(thin_points(self.points), _is_real) if real]
        path = "".join(_path(run, x, y) for run in runs if len(run) > 1)
        # A line of length zero still has round ends: a dot, for a point without neighbours.
        dots = "".join(f"{_path(run, x, y)}h0" for run in runs if len(run) == 1)
        yield Element("path", d=path, class_=self.style.css)
        if dots:
            yield Element("path", d=dots, class_=f"dot {self.style.css}")
        if self.style.marker:
            known = [(x(a), y(b)) for a, b in self.points if b is not None]
            step = -(-len(known) // _MAX_MARKERS)
            for across, down in known[
                (len(known) - 1) % step :: step
            ]:  # the last one always has a marker
                yield Element(
                    "path",
                    d=self.style.marker,
                    class_=f"mark {self.style.css}",
                    transform=f"translate({format_coordinate(across)} {format_coordinate(down)})",
                )

    def pixel_points(self, x: Scale, y: Scale) -> list[tuple[float, float, float, float]]:
        """(x pixel, y pixel, x, y) of each point that is drawn."""
        return [
            (round(x(a), 1), round(y(b), 1), a, b)
            for a, b in thin_points(self.points)
            if b is not None
        ]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points in the order of x. A y that is None or not finite leaves a gap.

    `faint` is for noisy values behind a line, best in the same color; `reference` is for baselines:
    grey, dashed, and not counted among the colors.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: Style = "line"
    color: int | None = None  # 0, 1, … (default: the next)
    low: Sequence[float] = ()  # ends of an interval around each y, drawn as a band
    high: Sequence[float] = ()

    def __post_init__(self) -> None:
        for what, ends in (("low ends", self.low), ("high ends", self.high)):
            if ends and len(ends) != len(self.x):
                raise InputError(
                    f"series {self.name!r} has {len(self.x)} x values and {len(ends)} {what}",
                    fix="pass one for each x",
                )
        if len(self.x) != len(self.y):
            raise InputError(
                f"series {self.name!r} has {len(self.x)} x values and {len(self.y)} y values",
                fix="pass one y for each x",
            )

    @property
    def data(self) -> dict[str, Any]:
        ends = {"low": _to_json_values(self.low), "high": _to_json_values(self.high)}
        values = {"x": _to_json_values(self.x), "y": _to_json_values(self.y)}
        return {"name": self.name, **values, **(ends if self.low else {})}


@dataclass(frozen=True, kw_only=True)
class LineChart(Figure):
    """A line chart. The y axis always includes the values of `include`."""

    title: str
    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    percent: bool = False  # y values are fractions
    log: bool = False  # logarithmic y axis; values that are not positive are left out
    include: Sequence[float] = ()
    note: str = ""
    wide: bool = False
    marker: tuple[float, str] | None = None  # an x to mark with a vertical line, and its label

    @property
    def width(self) -> float:
        return WIDE if self.wide else NARROW

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded; None where there is none."""
        return {
            "kind": "lines",
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "series": [series.data for series in self.series],
            **({"mark": list(self.marker)} if self.marker else {}),
        }

    def element(self) -> Element:
        """The chart as part of a page, with the data of the page's tooltips."""
        if self.wide:  # small windows show a narrower drawing of it
            narrow = replace(self, wide=False)._figure("narrow")
            return Element("div", self._figure("wide"), narrow, class_="either")
        return self._figure()

    def _figure(self, css: str | None = None) -> Element:
        layout = self._layout
        hover = {
            "x": self.x_label,
            "percent": self.percent,
            "top": layout.area.top,
            "bottom": layout.area.bottom,
            "series": [
                {
                    "name": line.name,
                    "class": line.style.css,
                    "points": line.pixel_points(layout.x, layout.y),
                }
                for line in layout.lines
            ],
        }
        note = [Element("figcaption", self.note)] if self.note else []
        return Element(
            "figure", self.svg(), json_script(hover), *note, class_=css, data_kind="lines"
        )

    def svg(self, *children: Element) -> Element:
        layout = self._layout
        area = layout.area
        background_first = sorted(layout.lines, key=lambda line: line.style.kind == "line")
        drawn = [part for line in background_first for part in line.elements(layout.x, layout.y)]
        if not drawn:
            middle = (area.top + area.bottom) / 2
            drawn = [draw_text("no values", area.width / 2, middle, class_="muted middle")]
        names = ", ".join(line.name for line in layout.lines)
        frame = draw_grid(area, layout.x, layout.y, x_label=self.x_label, percents=self.percent)
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.y_label),
            Element("g", *layout.legend),
            Element("g", *(frame if layout.lines else ()), *self._draw_marker(layout)),
            Element("g", *drawn, class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {area.width + 2 * MARGIN} {area.height + 2 * MARGIN}",
            role="img",
            aria_label=f"{self.title}: {names or 'no values'}",
        )

    def _draw_marker(self, layout: "_Layout") -> Iterator[Element]:
        """A thin vertical line with its label above it."""
        if self.marker is None or not layout.lines:
            return
        (value, word), area = self.marker, layout.area
        x = layout.x(value)
        title = Element("title", f"{word}: {self.x_label} {value:,g}")
        yield Element(
            "path", title, d=f"M{x:.1f} {area.top + 8:.1f}V{area.bottom:.1f}", class_="cross"
        )
        half = text_width(word) / 2
        middle = min(max(x, area.left + half), area.width - half)
        yield draw_text(word, middle, area.top + 4, class_="muted middle")

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout.of(self)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Positions of all parts of a chart."""

    area: PlotArea
    lines: Sequence[DrawnLine]
    legend: Sequence[Element]
    x: Scale
    y: Scale

    @classmethod
    def of(cls, chart: LineChart) -> "_Layout":
        width = chart.width
        lines = _make_lines(chart)
        # A single line needs no legend: the heading names it.
        named = [(line.name, line.style) for line in lines] if len(lines) > 1 else []
        rows = draw_legend(named, width, _HEADING - 4)
        top = _HEADING + ROW * len(rows) + (_MARKER if chart.marker else 0)
        bottom = _HEIGHT - (40 if chart.x_label else 24)
        ys = [y for line in lines for _, y in line.points if y is not None]
        ys += [end for line in lines for _, *ends in line.band for end in ends]
        ys += [value for value in chart.include if is_drawable(value, log=chart.log)]
        y = Scale.fit(ys, start=bottom, end=top + 8, log=chart.log).round_outward(_TICKS)
        left = 12 + max_label_width(y, percents=chart.percent)
        right = width - 18
        xs = [x for line in lines for x, _ in line.points]
        xs += [chart.marker[0]] if chart.marker else []
        return cls(
            area=PlotArea(
                width=width, height=_HEIGHT, left=left, top=top, right=right, bottom=bottom
            ),
            lines=lines,
            legend=[part for row in rows for part in row],
            x=Scale.fit(xs, start=left, end=right, integer=all(x == int(x) for x in xs)),
            y=y,
        )


def _make_lines(chart: LineChart) -> list[DrawnLine]:
    """Each series with its drawable points; series without any are left out."""
    lines = []
    colors = count()
    for series in chart.series:
        points = [
            (float(x), float(y) if y is not None and is_drawable(y, log=chart.log) else None)
            for x, y in zip(series.x, series.y, strict=True)
            if is_drawable(x)
        ]
        color = series.color
        if color is None and series.style != "reference":
            color = next(colors)
        if any(y is not None for _, y in points):
            style = LineStyle(kind=series.style, color=color)
            band = [
                (float(x), float(low), float(high))
                for x, low, high in zip(series.x, series.low, series.high, strict=False)
                if all(is_drawable(end, log=chart.log) for end in (low, high))
            ]
            lines.append(DrawnLine(name=series.name, style=style, points=points, band=band))
    return lines


def _to_json_values(values: Sequence[float | None]) -> list[float | None]:
    return [
        None
        if value is None or not math.isfinite(value)
        else value
        if isinstance(value, int)
        else float(value)  # convert numpy floats
        for value in values
    ]


def thin_points(points: Sequence[Point]) -> Sequence[Point]:
    """Thin out a long line, without losing peaks and gaps.

    Of each short segment both ends, the minimum, the maximum and a gap are kept.
    """
    size = -(-len(points) // _SEGMENTS)
    if size <= 4:  # noqa: PLR2004 - as many as would be kept
        return points
    kept: list[Point] = []
    for first in range(0, len(points), size):
        last = min(first + size, len(points))
        real = [at for at in range(first, last) if points[at][1] is not None]
        chosen = {first, last - 1}
        if real:
            chosen |= {min(real, key=lambda at: points[at][1] or 0.0)}
            chosen |= {max(real, key=lambda at: points[at][1] or 0.0)}
        if len(real) < last - first:
            chosen |= {next(at for at in range(first, last) if points[at][1] is None)}
        kept += [points[at] for at in sorted(chosen)]
    return kept


def _path(run: Sequence[Point], x: Scale, y: Scale) -> str:
    return "M" + "L".join(
        f"{format_coordinate(x(a))} {format_coordinate(y(b))}" for a, b in run if b is not None
    )


def _is_real(point: Point) -> bool:
    return point[1] is not None


def draw_legend(
    entries: Sequence[tuple[str, LineStyle]], width: float, top: float
) -> list[list[Element]]:
    """Rows of names with a sample of each line; as many rows as the width requires."""
    rows: list[list[Element]] = []
    across = width
    for name, style in entries:
        shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        needed = _SAMPLE + 8 + text_width(shown) + 14
        if not rows or across + needed > width:
            rows.append([])
            across = 0.0
        middle = top + ROW * (len(rows) - 0.5)
        rows[-1] += _draw_sample(style, across, middle)
        rows[-1].append(draw_text(shown, across + _SAMPLE + 8, middle + 4))
        across += needed
    return rows


def _draw_sample(style: LineStyle, left: float, middle: float) -> Iterator[Element]:
    yield Element("path", d=f"M{left:.1f} {middle:.1f}h{_SAMPLE}", class_=style.css)
    if style.marker:
        transform = f"translate({left + _SAMPLE / 2:.1f} {middle:.1f})"
        yield Element("path", d=style.marker, class_=f"mark {style.css}", transform=transform)
