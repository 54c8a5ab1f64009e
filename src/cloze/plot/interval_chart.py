"""Interval charts: a value with its confidence interval for each of several models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.plot.axes import FONT, Scale, draw_heading, draw_text, is_drawable, text_width
from cloze.plot.format import format_number, format_percent, format_ticks
from cloze.plot.svg import MARGIN, NARROW, Element, Figure, format_coordinate

_TOP, _BOTTOM = 30.0, 26.0
_ROW = 26.0
_CAP = 5.0  # half the height of the ends of an interval
_MAX_NAME = 0.4  # of the width
_TICKS = 5


@dataclass(frozen=True, kw_only=True)
class IntervalRow:
    """A named value, and the bounds of its interval if it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class IntervalChart(Figure):
    """A dot for each value and a line for its interval, one row below the other."""

    title: str
    rows: Sequence[IntervalRow]
    detail: str = ""  # after the title
    percent: bool = False  # values are fractions
    note: str = ""

    @property
    def width(self) -> float:
        return NARROW

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded; None where there is none."""
        rows = [
            {"name": row.name, **{key: _finite(getattr(row, key)) for key in _KEYS}}
            for row in self.rows
        ]
        return {"kind": "intervals", "title": self.title, "rows": rows}

    def element(self) -> Element:
        """The chart as part of a page."""
        note = [Element("figcaption", self.note)] if self.note else []
        return Element("figure", self.svg(), *note)

    def svg(self, *children: Element) -> Element:
        height = _TOP + _ROW * len(self.rows) + _BOTTOM
        names = [_shorten_name(row.name, NARROW * _MAX_NAME) for row in self.rows]
        shown = [self._format(row.value) for row in self.rows]
        left = max(map(text_width, names), default=0.0) + 14
        right = NARROW - max(map(text_width, shown), default=0.0) - 12
        values = [
            value for row in self.rows for key in _KEYS if is_drawable(value := getattr(row, key))
        ]
        x = Scale.fit(values, start=left, end=right).round_outward(_TICKS)
        drawn: list[Element] = []
        for number, (row, name, text) in enumerate(zip(self.rows, names, shown, strict=True)):
            y = _TOP + _ROW * (number + 0.5)
            drawn += [
                draw_text(name, left - 10, y + FONT / 3, class_="end"),
                *_draw_row(row, x, y, number),
                draw_text(text, NARROW, y + FONT / 3, class_="end"),
            ]
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            Element("g", *self._draw_axis(x, height - _BOTTOM)),
            Element("g", *drawn, class_="data"),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {NARROW + 2 * MARGIN} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {', '.join(map(' '.join, zip(names, shown, strict=True)))}",
        )

    def _format(self, value: float) -> str:
        return format_percent(value, 2) if self.percent else format_number(value)

    def _draw_axis(self, x: Scale, bottom: float) -> Iterator[Element]:
        ticks = x.ticks(_TICKS)
        for tick, text in zip(ticks, format_ticks(ticks, percents=self.percent), strict=True):
            across = format_coordinate(x(tick))
            yield Element("path", d=f"M{across} {_TOP:.0f}V{bottom:.0f}", class_="grid")
            yield draw_text(text, x(tick), bottom + FONT + 5, class_="muted middle")


_KEYS = ("value", "low", "high")


def _draw_row(row: IntervalRow, x: Scale, y: float, number: int) -> Iterator[Element]:
    css = "line c0" if number == 0 else "line c1"  # the first model is what others are compared to
    if row.low is not None and row.high is not None and is_drawable(row.low + row.high):
        low, high, top, bottom = map(
            format_coordinate, (x(row.low), x(row.high), y - _CAP, y + _CAP)
        )
        middle = format_coordinate(y)
        path = f"M{low} {top}V{bottom}M{low} {middle}H{high}M{high} {top}V{bottom}"
        yield Element("path", d=path, class_=css)
    if is_drawable(row.value):
        tooltip = Element("title", row.name)
        yield Element("circle", tooltip, cx=x(row.value), cy=y, r=4.5, class_=f"mark {css}")


def _shorten_name(name: str, width: float) -> str:
    """The end of a name that is too long: the last part of a path differs."""
    if text_width(name) <= width:
        return name
    while name and text_width(f"…{name}") > width:
        name = name[1:]
    return f"…{name}"


def _finite(value: float | None) -> float | None:
    return value if is_drawable(value) else None
