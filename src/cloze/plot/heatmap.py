"""Heatmaps: a number in each cell, and a shade that grows with it.

For confusion matrices, attention weights and alignments. There is one color with varying opacity,
so that the figure is readable in print and for color-blind people; the text contrasts with every
shade.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cloze.errors import InputError
from cloze.plot.axes import FONT, draw_heading, draw_text, text_width
from cloze.plot.format import format_number, format_percent, shorten_text
from cloze.plot.svg import MARGIN, NARROW, WIDE, Element, Figure

_LONGEST = 18  # characters of a name
_CELL = (14.0, 180.0)  # minimum and maximum width of a cell
_CELL_HEIGHT = (14.0, 72.0)
_TIGHT = 30.0  # narrower cells require a wide figure
_TIGHT_TEXT = 64.0  # the same for cells with texts
_HEIGHT = 240.0  # of all rows, if there are few
_SMALLEST = 7.0  # minimum font size
_EASY = 10.0  # font size that is easy to read
_SLANT = math.sqrt(0.5)  # of 45°


@dataclass(frozen=True, kw_only=True)
class Heatmap(Figure):
    """A matrix of numbers with a name for each row and column.

    A number that is None or not finite leaves its cell empty. The shade of a cell, from 0 to 1, is
    its number divided by the largest one, unless `shades` is given.
    """

    title: str
    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str = ""
    column_title: str = ""
    percent: bool = False  # values are fractions
    shades: Sequence[Sequence[float]] | None = None
    shade_title: str = ""  # meaning of the shade, for the tooltip: "of the row"
    signed: bool = False  # negative values have a color of their own
    same_decimals: bool = False  # whether all numbers have as many decimals as the largest
    texts: Sequence[Sequence[str]] | None = None  # shown in the cells in place of the numbers
    note: str = ""

    def __post_init__(self) -> None:
        matrices = (("numbers", self.values), ("shades", self.shades), ("texts", self.texts))
        for what, matrix in matrices:
            if matrix is None:
                continue
            widths = {len(row) for row in matrix}
            if len(matrix) != len(self.rows) or widths - {len(self.columns)}:
                raise InputError(
                    f"heatmap {self.title!r} has {len(self.rows)} × {len(self.columns)} names, "
                    f"and {len(matrix)} rows of {' and '.join(map(str, sorted(widths)))} {what}",
                    fix="pass one name for each row and column",
                )

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded; None where there is none."""
        return {
            "kind": "heat",
            "title": self.title,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "row_title": self.row_title,
            "column_title": self.column_title,
            "values": [[_to_finite(value) for value in row] for row in self.values],
        }

    @property
    def width(self) -> float:
        return self._layout.width

    @property
    def wide(self) -> bool:
        """Whether it needs the full width of a page."""
        return self.width > NARROW

    def element(self) -> Element:
        """The heatmap as part of a page."""
        note = [Element("figcaption", self.note)] if self.note else []
        return Element("figure", self.svg(), *note, class_="wide" if self.wide else None)

    def svg(self, *children: Element) -> Element:
        layout = self._layout
        width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
        return Element(
            "svg",
            *children,
            draw_heading(self.title, ""),
            Element("g", *self._draw_names(layout)),
            Element("g", *self._draw_cells(layout), class_="data"),
            class_="heat",
            viewBox=f"{-MARGIN} {-MARGIN} {width:.0f} {height:.0f}",
            role="img",
            aria_label=f"{self.title}: {len(self.rows)} × {len(self.columns)}",
        )

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout.of(self)

    def _draw_names(self, layout: "_Layout") -> Iterator[Element]:
        size = min(FONT, 0.9 * layout.cell_height)
        for number, name in enumerate(self.rows):
            middle = layout.top + (number + 0.5) * layout.cell_height
            yield draw_text(
                shorten_text(name, _LONGEST),
                layout.left - 8,
                middle + 0.35 * size,
                class_="end",
                font_size=size,
            )
        size = min(FONT, 0.9 * layout.cell_width)
        for number, name in enumerate(self.columns):
            x, y = layout.left + (number + 0.5) * layout.cell_width, layout.top - 8
            if layout.slanted:
                transform = f"translate({x + 0.35 * size:.1f} {y:.1f}) rotate(-45)"
                yield Element(
                    "text", shorten_text(name, _LONGEST), transform=transform, font_size=size
                )
            else:
                yield draw_text(shorten_text(name, _LONGEST), x, y, class_="middle", font_size=size)
        across, down = (layout.left + layout.right) / 2, (layout.top + layout.bottom) / 2
        if self.row_title:
            transform = f"translate(10 {down:.1f}) rotate(-90)"
            yield Element("text", self.row_title, class_="muted middle", transform=transform)
        if self.column_title:
            yield draw_text(self.column_title, across, 36, class_="muted middle")

    def _draw_cells(self, layout: "_Layout") -> Iterator[Element]:
        if not (self.rows and self.columns):
            yield draw_text("no values", layout.width / 2, layout.height / 2, class_="muted middle")
            return
        shades = self._compute_shades()
        write, size = layout.numbers
        for row, values in enumerate(self.values):
            for column, given in enumerate(values):
                value = _to_finite(given)
                x = layout.left + column * layout.cell_width
                y = layout.top + row * layout.cell_height
                yield Element(
                    "rect",
                    Element("title", self._tooltip(row, column, shades[row][column])),
                    x=x,
                    y=y,
                    width=layout.cell_width,
                    height=layout.cell_height,
                    fill_opacity=f"{shades[row][column]:.3f}",
                    class_="negative" if self.signed and (value or 0.0) < 0 else None,
                )
                if self.texts is not None:
                    yield from self._draw_cell_text(self.texts[row][column], x, y, layout)
                # If there is little space, zeros would hide the other numbers.
                elif size and value is not None and (value or size >= _EASY):
                    middle = y + layout.cell_height / 2 + 0.35 * size
                    css = "middle" if value else "middle zero"
                    yield draw_text(
                        write(value), x + layout.cell_width / 2, middle, class_=css, font_size=size
                    )

    def _draw_cell_text(
        self, text: str, x: float, y: float, layout: "_Layout"
    ) -> Iterator[Element]:
        """A text as large as is easy to read, shortened to the width of the cell."""
        size = min(FONT - 1.0, 0.8 * layout.cell_height)
        room = (layout.cell_width - 4) * FONT / size
        while text and text_width(text) > room:
            text = f"{text[:-2]}…" if len(text) > 2 else ""  # noqa: PLR2004
        if text and size >= _SMALLEST:
            middle = y + layout.cell_height / 2 + 0.35 * size
            across = x + layout.cell_width / 2
            yield draw_text(text, across, middle, class_="middle", font_size=size)

    def _compute_shades(self) -> list[list[float]]:
        if self.shades is not None:
            return [[_clamp_shade(shade) for shade in row] for row in self.shades]
        sizes = [[_to_finite(value) or 0.0 for value in row] for row in self.values]
        if self.signed:
            sizes = [[abs(size) for size in row] for row in sizes]
        largest = max((size for row in sizes for size in row), default=0.0)
        whole = largest if largest > 0 else 1.0
        return [[_clamp_shade(size / whole) for size in row] for row in sizes]

    def _tooltip(self, row: int, column: int, shade: float) -> str:
        value = _to_finite(self.values[row][column])
        exact = "–" if value is None else f"{value:,.6g}"
        shown = format_percent(value, 2) if self.percent and value is not None else exact
        fraction = f" ({format_percent(shade)} {self.shade_title})" if self.shade_title else ""
        sides = ((self.row_title, self.rows[row]), (self.column_title, self.columns[column]))
        names = ", ".join(f"{title}: {name}" if title else name for title, name in sides)
        return f"{names} – {shown}{fraction}"


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Positions of all parts of a heatmap."""

    width: float
    height: float
    left: float
    top: float
    cell_width: float
    cell_height: float
    right: float
    bottom: float
    slanted: bool
    numbers: tuple[Callable[[float], str], float]  # format and font size; 0: not shown

    @classmethod
    def of(cls, heatmap: Heatmap) -> "_Layout":
        left = 10 + _max_name_width(heatmap.rows) + (18 if heatmap.row_title else 0)
        names = _max_name_width(heatmap.columns)
        across, down = max(len(heatmap.columns), 1), max(len(heatmap.rows), 1)

        def cell(width: float) -> tuple[float, bool]:
            """The width of cells in a figure of this width, and whether names must be slanted."""
            size = _clamp((width - left) / across, _CELL)
            if names + 6 <= size:
                return size, False
            # the last slanted name extends beyond its cell
            return _clamp((width - left - _SLANT * names) / (across - 0.5), _CELL), True

        narrow = cell(NARROW)
        fits = narrow[0] >= (_TIGHT if heatmap.texts is None else _TIGHT_TEXT)
        size, slanted = narrow if fits else cell(WIDE)
        # Few rows: higher cells. Many rows: about square.
        height = _clamp(max(_HEIGHT / down, min(size, 24.0)), _CELL_HEIGHT)
        top = 34 + (18 if heatmap.column_title else 0) + (_SLANT * names + 6 if slanted else 12)
        right, bottom = left + size * across, top + height * down
        slanted_right = right + _SLANT * names - size / 2 if slanted else right
        return cls(
            width=max(NARROW if fits else WIDE, round(slanted_right)),
            height=bottom,
            left=left,
            top=top,
            right=right,
            bottom=bottom,
            cell_width=size,
            cell_height=height,
            slanted=slanted,
            numbers=_choose_number_format(heatmap, size - 2, height - 2),
        )


def _choose_number_format(
    heatmap: Heatmap, width: float, height: float
) -> tuple[Callable[[float], str], float]:
    """The most detailed format that is easy to read in a cell, else the shortest."""
    real = _known_values(heatmap.values)
    ways: tuple[Callable[[float], str], ...] = (_format_plain, format_number, _format_brief)
    if heatmap.percent:
        ways = (format_percent, _format_whole_percent)
    elif heatmap.signed or heatmap.same_decimals:
        ways = (_make_fixed_format(real, 2), _make_fixed_format(real, 1))
    size = 0.0
    for write in ways:
        longest = max((text_width(write(value)) for value in real), default=1.0)
        size = min(FONT, FONT * width / longest, height)
        if size >= _EASY:
            break
    return write, size if size >= _SMALLEST else 0.0


def _make_fixed_format(values: Sequence[float], digits: int) -> Callable[[float], str]:
    """The same decimals for all values, by the largest of them: -1.30, 0.02; or 0."""
    largest = max(map(abs, values), default=0.0)
    decimals = max(0, digits - (math.floor(math.log10(largest)) if largest > 0 else 0))

    def write(value: float) -> str:
        text = f"{value:.{decimals}f}"
        return text if text.strip("-0.") else "0"

    return write


def _format_plain(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else format_number(value)


def _format_brief(value: float) -> str:
    """Two significant digits: .52, 1.2k."""
    if abs(value) >= 1000:  # noqa: PLR2004
        return f"{value / 1000:.2g}k" if abs(value) < 99_500 else format_number(value)  # noqa: PLR2004
    if value == round(value):
        return f"{value:.0f}"
    return f"{value:.2g}".replace("0.", ".", 1)


def _format_whole_percent(value: float) -> str:
    return f"{100 * value:.0f}"


def _max_name_width(names: Sequence[str]) -> float:
    return max((text_width(shorten_text(name, _LONGEST)) for name in names), default=0.0)


def _clamp(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _clamp_shade(shade: float) -> float:
    return _clamp(float(shade), (0.0, 1.0)) if math.isfinite(shade) else 0.0


def _known_values(values: Sequence[Sequence[float | None]]) -> list[float]:
    known = (_to_finite(value) for row in values for value in row)
    return [value for value in known if value is not None]


def _to_finite(value: float | None) -> float | None:
    """A Python float; None for None, NaN and infinity."""
    return None if value is None or not math.isfinite(value) else float(value)
