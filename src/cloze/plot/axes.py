"""Axes of a chart: scales from values to pixels, ticks, grid, heading and text."""

import math
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from cloze.plot.format import format_number, format_ticks
from cloze.plot.svg import Element, Value

FONT = 12
ROW = 19  # height of a row of the legend
_LETTER = 0.62  # width of a letter in units of the font size, in the widest of the usual fonts
# Larger values cannot be rounded up, and smaller intervals are empty in floating point.
LARGEST = 1e300
SMALLEST = 1e-300
_SAME = 1e-9  # values that differ by less, relative to their size, are equal


def is_drawable(value: float | None, *, log: bool = False) -> bool:
    """Whether a value can be shown on an axis."""
    return (
        value is not None
        and math.isfinite(value)
        and abs(value) <= LARGEST
        and (value >= SMALLEST or not log)
    )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Maps values low … high to pixels start … end."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    integer: bool = False  # ticks are whole numbers

    @classmethod
    def fit(
        cls,
        values: Iterable[float],
        *,
        start: float,
        end: float,
        log: bool = False,
        integer: bool = False,
    ) -> Self:
        """A scale of all `values`, which must be drawable; a single value is in the middle."""
        known = list(values) or [1.0]
        low, high = min(known), max(known)
        if high - low <= max(_SAME * max(abs(low), abs(high)), SMALLEST):
            low, high = _widen(low, log=log)
        return cls(low=low, high=high, start=start, end=end, log=log, integer=integer)

    def round_outward(self, about: int) -> Self:
        """The same scale, extended to round numbers."""
        if self.log:
            return self
        step = _round_step(self.high - self.low, about)
        low, high = math.floor(self.low / step + _SAME), math.ceil(self.high / step - _SAME)
        return type(self)(low=low * step, high=high * step, start=self.start, end=self.end)

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        if self.log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
        else:
            low, high = self.low, self.high
        return self.start + (self.end - self.start) * ((value - low) / (high - low))

    def ticks(self, about: int) -> list[float]:
        """About `about` round numbers from low to high, in order."""
        if not self.log:
            step = _round_step(self.high - self.low, about)
            return list(_multiples(self.low, self.high, max(step, 1.0) if self.integer else step))
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        stride = math.ceil(len(exponents) / (2 * about))
        for digits in ((1,), (1, 2, 5)):
            ticks = [digit * 10.0**power for power in exponents[::stride] for digit in digits]
            inside = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(inside) >= 3:  # noqa: PLR2004 - fewer do not show that the axis is logarithmic
                return inside
        step = _round_step(self.high - self.low, about)
        return [tick for tick in _multiples(self.low, self.high, step) if tick > 0]


def _widen(value: float, *, log: bool) -> tuple[float, float]:
    if log:
        return value / 2, value * 2
    if abs(value) <= SMALLEST:
        return 0.0, 1.0
    return value - abs(value) / 2, value + abs(value) / 2


def _multiples(low: float, high: float, step: float) -> Iterator[float]:
    for count in range(math.ceil(low / step - _SAME), math.floor(high / step + _SAME) + 1):
        yield count * step


def _round_step(span: float, about: int) -> float:
    """1, 2 or 5 times a power of ten: the smallest step that needs at most `about` steps."""
    rough = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough * (1 - _SAME))


@dataclass(frozen=True, kw_only=True)
class PlotArea:
    """The size of a figure, and the area that the axes enclose."""

    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float


def text_width(text: str) -> float:
    """The approximate width of a text in pixels."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return FONT * (_LETTER * (len(text) - wide) + wide)


def draw_heading(title: str, detail: str) -> Element:
    parts = [Element("tspan", title, class_="title")]
    if detail:
        parts.append(Element("tspan", detail, class_="muted", dx=8))
    return Element("text", *parts, x=0, y=15)


def draw_grid(
    area: PlotArea, x: Scale, y: Scale, *, x_label: str = "", percents: bool = False
) -> Iterator[Element]:
    """Grid lines at round values, and the tick labels of both axes."""
    for pixel, text in _labelled_ticks(y, 5, percents=percents):
        yield Element("path", d=f"M{area.left:.1f} {pixel:.1f}H{area.right:.1f}", class_="grid")
        yield draw_text(text, area.left - 8, pixel + 4, class_="muted end")
    yield Element("path", d=f"M{area.left:.1f} {area.bottom:.1f}H{area.right:.1f}", class_="axis")
    for pixel, text in _labelled_ticks(x, int((area.right - area.left) // 80)):
        yield Element("path", d=f"M{pixel:.1f} {area.bottom:.1f}v4", class_="axis")
        yield draw_text(text, pixel, area.bottom + 17, class_="muted middle")
    if x_label:
        yield draw_text(x_label, area.right, area.bottom + 33, class_="muted end")


def max_label_width(y: Scale, *, percents: bool) -> float:
    """The width of the tick labels in pixels."""
    return max(
        (text_width(text) for _, text in _labelled_ticks(y, 5, percents=percents)), default=0.0
    )


def draw_text(text: str, x: float, y: float, **attributes: Value) -> Element:
    return Element("text", text, x=x, y=y, **attributes)


def _labelled_ticks(
    scale: Scale, about: int, *, percents: bool = False
) -> Iterator[tuple[float, str]]:
    ticks = scale.ticks(about)
    uneven = scale.log and not percents
    texts = map(format_number, ticks) if uneven else format_ticks(ticks, percents=percents)
    return zip(map(scale, ticks), texts, strict=True)
