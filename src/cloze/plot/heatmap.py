"""Heat maps: a number in each cell, and a shade that grows with it.

For a confusion matrix, for attention: whatever has words along both sides. One colour, from none
to full, so that it reads the same for all eyes and in print; the ink stands out on every shade.
"""

import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cloze.errors import InputError
from cloze.plot.axes import FONT, draw_heading, draw_text, text_width
from cloze.plot.format import format_number, format_percent
from cloze.plot.svg import MARGIN, NARROW, WIDE, Element, Figure

_LONGEST = 18  # letters of a name
_CELL = (14.0, 180.0)  # width of a cell, at least and at most
_CELL_HEIGHT = (14.0, 72.0)
_TIGHT = 30.0  # cells narrower than this ask for a wide picture
_HEIGHT = 240.0  # of all rows, if cells may choose
_SMALLEST = 7.0  # letters that can still be read
_EASY = 10.0  # and those that are read with ease
_SLANT = math.sqrt(0.5)  # of 45°


@dataclass(frozen=True, kw_only=True)
class Heatmap(Figure):
    """Rows of numbers with a name for each row and each column.

    A number that is None or not finite leaves its cell empty. The shade of a cell is its number's
    share of the largest, unless `shades` says otherwise, each from 0 to 1; below 0 there is none.
    """

    title: str
    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_title: str = ""
    column_title: str = ""
    percent: bool = False  # values are shares of one
    shades: Sequence[Sequence[float]] | None = None
    shade_title: str = ""  # what a shade is a share of, for the reader who points at a cell
    note: str = ""

    def __post_init__(self) -> None:
        for what, matrix in (("numbers", self.values), ("shades", self.shades)):
            if matrix is None:
                continue
            widths = {len(row) for row in matrix}
            if len(matrix) != len(self.rows) or widths - {len(self.columns)}:
                raise InputError(
                    f"heat map {self.title!r} has {len(self.rows)} × {len(self.columns)} names, "
                    f"and {len(matrix)} rows of {' and '.join(map(str, sorted(widths)))} {what}",
                    fix="give each row and each column one name",
                )

    @property
    def data(self) -> dict[str, Any]:
        """Every number, unrounded; None where there is none."""
        return {
            "kind": "heat",
            "title": self.title,
            "rows": list(self.rows),
            "columns": list(self.columns),
            "row_title": self.row_title,
            "column_title": self.column_title,
            "values": [[_finite(value) for value in row] for row in self.values],
        }

    @property
    def width(self) -> float:
        return self._layout.width

    @property
    def wide(self) -> bool:
        """Whether it needs all of a page's width."""
        return self.width > NARROW

    def element(self) -> Element:
        """The map as part of a page."""
        note = [Element("figcaption", self.note)] if self.note else []
        return Element("figure", self.svg(), *note, class_="wide" if self.wide else None)

    def svg(self, *children: Element) -> Element:
        layout = self._layout
        width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
        return Element(
            "svg",
            *children,
            draw_heading(self.title, ""),
            Element("g", *self._names(layout)),
            Element("g", *self._cells(layout), class_="data"),
            class_="heat",
            viewBox=f"{-MARGIN} {-MARGIN} {width:.0f} {height:.0f}",
            role="img",
            aria_label=f"{self.title}: {len(self.rows)} × {len(self.columns)}",
        )

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout.of(self)

    def _names(self, layout: "_Layout") -> Iterator[Element]:
        size = min(FONT, 0.9 * layout.cell_height)
        for number, name in enumerate(self.rows):
            middle = layout.top + (number + 0.5) * layout.cell_height
            yield draw_text(
                _shorten(name), layout.left - 8, middle + 0.35 * size, class_="end", font_size=size
            )
        size = min(FONT, 0.9 * layout.cell_width)
        for number, name in enumerate(self.columns):
            x, y = layout.left + (number + 0.5) * layout.cell_width, layout.top - 8
            if layout.slanted:
                place = f"translate({x + 0.35 * size:.1f} {y:.1f}) rotate(-45)"
                yield Element("text", _shorten(name), transform=place, font_size=size)
            else:
                yield draw_text(_shorten(name), x, y, class_="middle", font_size=size)
        across, down = (layout.left + layout.right) / 2, (layout.top + layout.bottom) / 2
        if self.row_title:
            place = f"translate(10 {down:.1f}) rotate(-90)"
            yield Element("text", self.row_title, class_="muted middle", transform=place)
        if self.column_title:
            yield draw_text(self.column_title, across, 36, class_="muted middle")

    def _cells(self, layout: "_Layout") -> Iterator[Element]:
        if not (self.rows and self.columns):
            yield draw_text("no values", layout.width / 2, layout.height / 2, class_="muted middle")
            return
        shades = self._shades()
        write, size = layout.numbers
        for row, values in enumerate(self.values):
            for column, given in enumerate(values):
                value = _finite(given)
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
                )
                # Where there is little room, cells of nothing would hide the others.
                if size and value is not None and (value or size >= _EASY):
                    middle = y + layout.cell_height / 2 + 0.35 * size
                    css = "middle" if value else "middle zero"
                    yield draw_text(
                        write(value), x + layout.cell_width / 2, middle, class_=css, font_size=size
                    )

    def _shades(self) -> list[list[float]]:
        if self.shades is not None:
            return [[_clamp_shade(shade) for shade in row] for row in self.shades]
        largest = max(_known_values(self.values), default=0.0)
        whole = largest if largest > 0 else 1.0
        return [
            [_clamp_shade((_finite(value) or 0.0) / whole) for value in row] for row in self.values
        ]

    def _tooltip(self, row: int, column: int, shade: float) -> str:
        value = _finite(self.values[row][column])
        exact = "–" if value is None else f"{value:,.6g}"
        shown = format_percent(value, 2) if self.percent and value is not None else exact
        share = f" ({format_percent(shade)} {self.shade_title})" if self.shade_title else ""
        sides = ((self.row_title, self.rows[row]), (self.column_title, self.columns[column]))
        names = ", ".join(f"{title}: {name}" if title else name for title, name in sides)
        return f"{names} – {shown}{share}"


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where everything of a map lies."""

    width: float
    height: float
    left: float
    top: float
    cell_width: float
    cell_height: float
    right: float
    bottom: float
    slanted: bool
    numbers: tuple[Callable[[float], str], float]  # how they are written, and how large; 0: not

    @classmethod
    def of(cls, heat: Heatmap) -> "_Layout":
        left = 10 + _max_name_width(heat.rows) + (18 if heat.row_title else 0)
        names = _max_name_width(heat.columns)
        across, down = max(len(heat.columns), 1), max(len(heat.rows), 1)

        def cell(width: float) -> tuple[float, bool]:
            """The width of cells in a picture of this width, and whether names must slant."""
            size = _clamp((width - left) / across, _CELL)
            if names + 6 <= size:
                return size, False
            # the last name leans out of the picture by what its cell does not cover
            return _clamp((width - left - _SLANT * names) / (across - 0.5), _CELL), True

        narrow = cell(NARROW)
        size, slanted = narrow if narrow[0] >= _TIGHT else cell(WIDE)
        # Few rows: cells as high as look well beside their width. Many: about square.
        height = _clamp(max(_HEIGHT / down, min(size, 24.0)), _CELL_HEIGHT)
        top = 34 + (18 if heat.column_title else 0) + (_SLANT * names + 6 if slanted else 12)
        right, bottom = left + size * across, top + height * down
        leaning = right + _SLANT * names - size / 2 if slanted else right
        return cls(
            width=max(NARROW if narrow[0] >= _TIGHT else WIDE, round(leaning)),
            height=bottom,
            left=left,
            top=top,
            right=right,
            bottom=bottom,
            cell_width=size,
            cell_height=height,
            slanted=slanted,
            numbers=_choose_number_format(heat, size - 2, height - 2),
        )


def _choose_number_format(
    heat: Heatmap, width: float, height: float
) -> tuple[Callable[[float], str], float]:
    """The longest way to write the numbers that is easy to read in a cell, else the shortest."""
    real = _known_values(heat.values)
    ways = (
        (format_percent, _format_whole_percent)
        if heat.percent
        else (_format_plain, format_number, _format_brief)
    )
    size = 0.0
    for write in ways:
        longest = max((text_width(write(value)) for value in real), default=1.0)
        size = min(FONT, FONT * width / longest, height)
        if size >= _EASY:
            break
    return write, size if size >= _SMALLEST else 0.0


def _format_plain(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else format_number(value)


def _format_brief(value: float) -> str:
    """Two digits that matter: .52, 1.2k."""
    if abs(value) >= 1000:  # noqa: PLR2004
        return f"{value / 1000:.2g}k" if abs(value) < 99_500 else format_number(value)  # noqa: PLR2004
    if value == round(value):
        return f"{value:.0f}"
    return f"{value:.2g}".replace("0.", ".", 1)


def _format_whole_percent(value: float) -> str:
    return f"{100 * value:.0f}"


def _shorten(name: str) -> str:
    """A name in the room of `_LONGEST` letters; Chinese ones count twice."""
    room = float(_LONGEST)
    for number, letter in enumerate(name):
        room -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return f"{name[: max(number - 1, 1)]}…"
    return name


def _max_name_width(names: Sequence[str]) -> float:
    return max((text_width(_shorten(name)) for name in names), default=0.0)


def _clamp(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _clamp_shade(shade: float) -> float:
    return _clamp(float(shade), (0.0, 1.0)) if math.isfinite(shade) else 0.0


def _known_values(values: Sequence[Sequence[float | None]]) -> list[float]:
    known = (_finite(value) for row in values for value in row)
    return [value for value in known if value is not None]


def _finite(value: float | None) -> float | None:
    """A plain number, which numpy's own kinds are not; None where there is none."""
    return None if value is None or not math.isfinite(value) else float(value)
