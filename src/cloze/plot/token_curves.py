"""Curves over the tokens of a text, and the tokens in the color of their strongest curve.

For the factors and clusters of neurons. With its script, the curve under the pointer colors the
tokens by its own values, and the token under the pointer shows the values of all curves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from cloze.errors import InputError
from cloze.plot.axes import draw_heading, draw_text, text_width
from cloze.plot.format import format_number
from cloze.plot.svg import MARGIN, WIDE, Element, Figure, format_coordinate, json_script
from cloze.plot.token_boxes import (
    BOX_HEIGHT,
    LINE_HEIGHT,
    MAX_OPACITY,
    Box,
    place_boxes,
    shorten_token,
)

NUM_COLORS = 6  # in chart.css
_TOP = 30.0
_CURVE = 36.0  # height of a curve
_VALUE = 64.0  # width of the column of values


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A number for each token, none negative."""

    name: str
    values: Sequence[float]
    detail: str = ""  # a short text below the name


@dataclass(frozen=True, kw_only=True)
class TokenCurves(Figure):
    """The tokens of a text, and below them one small line for each curve."""

    script: ClassVar[str] = "token_curves"

    title: str
    tokens: Sequence[str]
    curves: Sequence[Curve]
    detail: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for curve in self.curves:
            if len(curve.values) != len(self.tokens):
                raise InputError(
                    f"curve {curve.name!r} has {len(curve.values)} values for "
                    f"{len(self.tokens)} tokens",
                    fix="pass one value for each token",
                )

    @property
    def width(self) -> float:
        return WIDE

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded."""
        return {
            "kind": "token curves",
            "title": self.title,
            "tokens": list(self.tokens),
            "curves": [
                {"name": curve.name, "detail": curve.detail, "values": list(curve.values)}
                for curve in self.curves
            ],
        }

    def element(self) -> Element:
        """The figure as part of a page, with the data of its script."""
        curves = [
            {"name": curve.name, "values": [float(f"{value:.4g}") for value in curve.values]}
            for curve in self.curves
        ]
        layout = self._layout
        values = {
            "tokens": list(self.tokens),
            "curves": curves,
            "xs": [round(x, 1) for x in layout.xs],
            "opacity": MAX_OPACITY,
        }
        note = [Element("figcaption", self.note)] if self.note else []
        return Element(
            "figure",
            self.svg(),
            json_script(values),
            *note,
            class_="wide",
            data_kind="token-curves",
        )

    def svg(self, *children: Element) -> Element:
        layout = self._layout
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            Element("g", *self._draw_tokens(layout)),
            Element("g", *self._draw_curves(layout), class_="data"),
            class_="lines curves",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {layout.height + 2 * MARGIN:.0f}",
            role="group",
            aria_label=f"{self.title}: {len(self.curves)} curves over {len(self.tokens)} tokens",
        )

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout.of(self)

    def _draw_tokens(self, layout: "_Layout") -> Iterator[Element]:
        peaks = [max(curve.values, default=0.0) for curve in self.curves]
        for number, (token, (x, y, width)) in enumerate(
            zip(self.tokens, layout.boxes, strict=True)
        ):
            values = [curve.values[number] for curve in self.curves]
            best = max(range(len(values)), key=values.__getitem__, default=None)
            if best is None or values[best] <= 0:
                best = None
            parts = [
                f"{curve.name} {format_number(value)}"
                for curve, value in zip(self.curves, values, strict=True)
            ]
            strength = 0.0 if best is None else values[best] / peaks[best]
            yield Element(
                "g",
                Element("title", f"{token}: {', '.join(parts)}"),
                Element(
                    "rect",
                    x=x,
                    y=y,
                    width=width,
                    height=BOX_HEIGHT,
                    rx=3,
                    class_="none" if best is None else f"f{best % NUM_COLORS}",
                    fill_opacity=f"{MAX_OPACITY * strength:.3f}",
                ),
                draw_text(shorten_token(token), x + width / 2, y + 15, class_="middle"),
                draw_text(
                    "" if best is None else str(best + 1),
                    x + width / 2,
                    y + 29,
                    class_="middle small",
                ),
                class_="token",
                data_token=number,
            )

    def _draw_curves(self, layout: "_Layout") -> Iterator[Element]:
        for number, curve in enumerate(self.curves):
            bottom = layout.tops[number] + _CURVE - 8
            peak = max(curve.values, default=0.0) or 1.0
            ys = [bottom - (_CURVE - 12) * max(value, 0.0) / peak for value in curve.values]
            points = [
                f"{format_coordinate(x)} {format_coordinate(y)}"
                for x, y in zip(layout.xs, ys, strict=True)
            ]
            css = f"c{number % NUM_COLORS}"
            line = f"M{'L'.join(points)}" + ("h0" if len(points) == 1 else "")
            first, last = format_coordinate(layout.xs[0]), format_coordinate(layout.xs[-1])
            area = f"M{first} {bottom:.1f}L{'L'.join(points)}L{last} {bottom:.1f}z"
            best = max(range(len(curve.values)), key=curve.values.__getitem__)
            yield Element(
                "g",
                Element(
                    "rect",
                    x=0,
                    y=layout.tops[number],
                    width=WIDE,
                    height=_CURVE - 2,
                    class_="row",
                ),
                draw_text(f"{number + 1}", 0, layout.tops[number] + 15, class_="number"),
                draw_text(curve.name, 22, layout.tops[number] + 15),
                draw_text(curve.detail, 22, layout.tops[number] + 29, class_="muted small"),
                Element("path", d=f"M{first} {bottom:.1f}H{last}", class_="grid"),
                Element("path", d=area, class_=f"area f{number % NUM_COLORS}"),
                Element("path", d=line, class_=css),
                draw_text(format_number(peak), WIDE, bottom, class_="muted end value"),
                class_="curve",
                data_curve=number,
                role="button",
                aria_label=f"{curve.name}: largest at {self.tokens[best]}",
            )


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Positions of tokens and curves."""

    boxes: Sequence[Box]  # of each token
    tops: Sequence[float]  # of each curve
    xs: Sequence[float]  # of each token in the curves
    height: float

    @classmethod
    def of(cls, figure: TokenCurves) -> "_Layout":
        boxes = place_boxes(figure.tokens, _TOP)
        top = (boxes[-1][1] if boxes else _TOP) + LINE_HEIGHT + 8
        tops = [top + number * _CURVE for number in range(len(figure.curves))]
        names = [text for curve in figure.curves for text in (curve.name, curve.detail)]
        left = 36 + max(map(text_width, names), default=0.0)
        right = WIDE - _VALUE
        steps = max(len(figure.tokens) - 1, 1)
        xs = [left + (right - left) * number / steps for number in range(len(figure.tokens))]
        return cls(boxes=boxes, tops=tops, xs=xs, height=top + _CURVE * len(figure.curves))
