"""What each attention head does: a grid of layers and heads, with a color for each pattern."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.plot.attention import color_head
from cloze.plot.axes import draw_heading, draw_text, text_width
from cloze.plot.format import format_percent
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

_LEFT, _TOP = 62.0, 54.0
_CELL = (34.0, 76.0)  # minimum and maximum width
_ROW = 26.0
_GRAY = "#8a94a3"  # of what has no pattern: the last two names


@dataclass(frozen=True, kw_only=True)
class HeadOverview(Figure):
    """A cell for each layer (rows) and head: a pattern, by its number, and its share (0 to 1)."""

    title: str
    cells: Sequence[Sequence[tuple[int, float]]]
    names: Sequence[str]  # of all patterns, in the order of their colors; the last two are gray
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        cells = [[[self.names[number], share] for number, share in row] for row in self.cells]
        return {"kind": "head-overview", "title": self.title, "cells": cells}

    @property
    def width(self) -> float:
        return max(WIDE, _LEFT + self._cell * len(self.cells[0]) + self._legend_width())

    def element(self) -> Element:
        """The figure as part of a page."""
        note = [Element("figcaption", self.note)] if self.note else []
        return Element("figure", self.svg(), *note, class_="wide")

    def svg(self, *children: Element) -> Element:
        shown = self._count_heads()
        height = _TOP + _ROW * max(len(self.cells), len(shown)) + 8
        return Element(
            "svg",
            *children,
            draw_heading(self.title, ""),
            Element("g", *self._draw_names()),
            Element("g", *self._draw_cells(), class_="data"),
            Element("g", *self._draw_legend(shown)),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {self.width + 2 * MARGIN:.0f} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: "
            + ", ".join(f"{count} heads {self.names[number]}" for number, count in shown.items()),
        )

    @property
    def _cell(self) -> float:
        space = WIDE - _LEFT - self._legend_width()
        return min(max(space / max(len(self.cells[0]), 1), _CELL[0]), _CELL[1])

    def _legend_width(self) -> float:
        return max(map(text_width, self.names)) + 80

    def _count_heads(self) -> dict[int, int]:
        """The patterns that occur, and the number of their heads."""
        found = [number for row in self.cells for number, _ in row]
        return {number: found.count(number) for number in sorted(set(found))}

    def _color(self, number: int) -> str:
        colored = len(self.names) - 2
        return color_head(number, colored) if number < colored else _GRAY

    def _draw_names(self) -> Iterator[Element]:
        yield draw_text("head", _LEFT - 10, _TOP - 8, class_="muted end")
        for head in range(len(self.cells[0])):
            x = _LEFT + (head + 0.5) * self._cell
            yield draw_text(str(head + 1), x, _TOP - 8, class_="muted middle")
        for layer in range(len(self.cells)):
            text = f"layer {layer + 1}" if layer == 0 else str(layer + 1)
            y = _TOP + (layer + 0.5) * _ROW + 4
            yield draw_text(text, _LEFT - 10, y, class_="muted end")

    def _draw_cells(self) -> Iterator[Element]:
        for layer, row in enumerate(self.cells):
            for head, (number, share) in enumerate(row):
                x, y = _LEFT + head * self._cell, _TOP + layer * _ROW
                title = (
                    f"layer {layer + 1}, head {head + 1}: {self.names[number]}, "
                    f"{format_percent(share)}"
                )
                grays = {len(self.names) - 2: 0.35, len(self.names) - 1: 0.12}
                opacity = grays.get(number, min(0.2 + 0.55 * share, 0.75))
                yield Element(
                    "rect",
                    Element("title", title),
                    x=x + 1,
                    y=y + 1,
                    width=self._cell - 2,
                    height=_ROW - 2,
                    rx=3,
                    fill=self._color(number),
                    fill_opacity=f"{opacity:.2f}",
                )
                if number not in grays:
                    text = f"{100 * share:.0f}"
                    yield draw_text(text, x + self._cell / 2, y + _ROW / 2 + 4, class_="middle")

    def _draw_legend(self, shown: dict[int, int]) -> Iterator[Element]:
        x = _LEFT + self._cell * len(self.cells[0]) + 24
        end = x + 44 + max(text_width(self.names[number]) for number in shown)
        for row, (number, count) in enumerate(shown.items()):
            y = _TOP + row * _ROW
            color = self._color(number)
            yield Element("rect", x=x, y=y + 6, width=14, height=14, rx=3, fill=color)
            yield draw_text(self.names[number], x + 22, y + _ROW / 2 + 4)
            yield draw_text(str(count), end, y + _ROW / 2 + 4, class_="muted end")
