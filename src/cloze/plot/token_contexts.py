"""Tokens in their contexts, one line each, with a shade that grows with a value of each token.

For the tokens of a corpus that excite a neuron most.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.plot.axes import draw_heading, draw_text, text_width
from cloze.plot.format import format_number, shorten_text
from cloze.plot.svg import MARGIN, WIDE, Element, Figure

_TOP, _ROW = 30.0, 24.0
_GAP = 4.0  # between two tokens
_LEFT = 62.0  # of the column of values
_OPACITY = 0.85
_LONGEST = 24  # characters of a token


@dataclass(frozen=True, kw_only=True)
class TokenContext:
    """Neighboring tokens with their values; `index` is the one of interest."""

    tokens: Sequence[str]
    values: Sequence[float]
    index: int
    label: str = ""  # where it is from


@dataclass(frozen=True, kw_only=True)
class TokenContexts(Figure):
    """Contexts below each other, their tokens of interest in one column."""

    title: str
    contexts: Sequence[TokenContext]
    detail: str = ""

    @property
    def width(self) -> float:
        return WIDE

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded."""
        return {
            "kind": "token contexts",
            "title": self.title,
            "contexts": [
                {
                    "tokens": list(one.tokens),
                    "values": list(one.values),
                    "index": one.index,
                    "label": one.label,
                }
                for one in self.contexts
            ],
        }

    def element(self) -> Element:
        """The figure as part of a page."""
        return Element("figure", self.svg(), class_="wide")

    def svg(self, *children: Element) -> Element:
        height = _TOP + _ROW * max(len(self.contexts), 1)
        drawn = [part for row in range(len(self.contexts)) for part in self._draw_row(row)]
        if not drawn:
            drawn = [draw_text("no values", WIDE / 2, _TOP + 14, class_="muted middle")]
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            Element("g", *drawn, class_="data"),
            class_="heat",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {', '.join(one.tokens[one.index] for one in self.contexts)}",
        )

    def _draw_row(self, row: int) -> Iterator[Element]:
        context = self.contexts[row]
        top = _TOP + row * _ROW
        peak = max((max(one.values, default=0.0) for one in self.contexts), default=0.0) or 1.0
        value = context.values[context.index]
        yield draw_text(format_number(value), _LEFT - 10, top + 16, class_="end muted")
        widths = [text_width(shorten_text(token, _LONGEST)) + 4 for token in context.tokens]
        middle = _LEFT + (WIDE - _LEFT) / 2
        lefts = {context.index: middle - widths[context.index] / 2}
        x = lefts[context.index]
        for index in range(context.index - 1, -1, -1):
            x -= widths[index] + _GAP
            lefts[index] = x
        x = middle + widths[context.index] / 2 + _GAP
        for index in range(context.index + 1, len(context.tokens)):
            lefts[index] = x
            x += widths[index] + _GAP
        for index, token in enumerate(context.tokens):
            left, width = lefts[index], widths[index]
            if left < _LEFT or left + width > WIDE:
                continue
            shade = _OPACITY * max(context.values[index], 0.0) / peak
            place = f" ({context.label})" if context.label else ""
            yield Element(
                "rect",
                Element("title", f"{token}: {context.values[index]:.6g}{place}"),
                x=left,
                y=top + 2,
                width=width,
                height=_ROW - 5,
                rx=2,
                fill_opacity=f"{shade:.3f}",
            )
            weight = "650" if index == context.index else None
            yield draw_text(
                shorten_text(token, _LONGEST),
                left + width / 2,
                top + 16,
                class_="middle",
                font_weight=weight,
            )
