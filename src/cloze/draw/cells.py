"""Vectors as rows of coloured cells: red near 2, white near 0, blue near −2.

Words of one kind show the same columns. Beyond ±2 a colour stays as it is.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.draw.axes import ROW, heading, label, text_width
from cloze.draw.picture import EDGE, WIDE, Picture
from cloze.draw.svg import Element
from cloze.errors import InputError

LIMIT = 2.0
_BLUE, _WHITE, _RED = (33, 102, 172), (255, 255, 255), (178, 24, 43)
_HEIGHT = 26.0  # of a row
_TOP = 54.0
_KEY = 160.0  # width of the key


@dataclass(frozen=True, kw_only=True)
class Cells(Picture):
    """A name and its numbers in each row."""

    title: str
    rows: Sequence[str]
    values: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.values}
        if len(self.rows) != len(self.values) or len(widths) != 1 or 0 in widths:
            raise InputError(
                f"{len(self.rows)} names, and {len(self.values)} rows of "
                f"{' and '.join(map(str, sorted(widths))) or 'no'} numbers",
                fix="give each row one name and all rows the same number of numbers",
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
        """The rows as part of a page."""
        return Element("figure", self.svg(), class_="wide")

    def svg(self, *children: Element) -> Element:
        height = _TOP + _HEIGHT * len(self.rows)
        return Element(
            "svg",
            *children,
            heading(self.title, ""),
            Element("g", *_key()),
            Element("g", *self._drawn(), class_="data"),
            class_="lines",
            viewBox=f"{-EDGE} {-EDGE} {WIDE + 2 * EDGE} {height + 2 * EDGE:.0f}",
            role="img",
            aria_label=f"{self.title}: {len(self.rows)} rows of {len(self.values[0])} cells",
        )

    def _drawn(self) -> Iterator[Element]:
        left = 10 + max(map(text_width, self.rows))
        cell = (WIDE - left) / len(self.values[0])
        for number, (name, values) in enumerate(zip(self.rows, self.values, strict=True)):
            top = _TOP + number * _HEIGHT
            yield label(name, left - 8, top + _HEIGHT / 2 + 3, class_="end")
            for column, value in enumerate(values):
                # one pixel wider than its share, so that no line of ground shows between two
                last = column == len(values) - 1
                yield Element(
                    "rect",
                    x=left + column * cell,
                    y=top,
                    width=cell if last else cell + 1,
                    height=_HEIGHT - 3,
                    fill=colour(value),
                )


def colour(value: float) -> str:
    """As CSS writes it; grey for what is no number."""
    if not math.isfinite(value):
        return "#999999"
    share = min(abs(value) / LIMIT, 1.0)
    end = _RED if value > 0 else _BLUE
    mixed = (round(w + (e - w) * share) for w, e in zip(_WHITE, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _key() -> Iterator[Element]:
    steps = 40
    yield label("−2", 0, ROW + 18, class_="muted")
    for step in range(steps):
        value = LIMIT * (2 * step / (steps - 1) - 1)
        yield Element(
            "rect",
            x=22 + step * _KEY / steps,
            y=ROW + 8,
            width=_KEY / steps + 0.5,
            height=12,
            fill=colour(value),
        )
    yield label("2 deviations", 28 + _KEY, ROW + 18, class_="muted")
