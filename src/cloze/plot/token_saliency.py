"""The tokens of a text, colored by how much each contributes to an output of a model.

With its script, the output under the pointer (its name, or the generated token) colors the tokens
by its own values.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

from cloze.errors import InputError
from cloze.plot.axes import draw_heading, draw_text, text_width
from cloze.plot.format import format_percent
from cloze.plot.svg import MARGIN, WIDE, Element, Figure, json_script
from cloze.plot.token_boxes import (
    BOX_HEIGHT,
    LINE_HEIGHT,
    MAX_OPACITY,
    Box,
    place_boxes,
    shorten_token,
)

_TOP = 30.0
_NARROWEST = 26.0  # a box, so that its value fits
_NARROWEST_SIGNED = 36.0
_LABEL = 20.0  # height of the name of a group of tokens
_SMALLEST = 0.005  # a saliency below it has no number
_DIGITS = 5  # of values for the script


@dataclass(frozen=True, kw_only=True)
class SaliencyColumn:
    """The contributions of all tokens to one output."""

    name: str
    values: Sequence[float]
    detail: str = ""  # its probability
    token: int | None = None  # the token that is this output, if it is one of the text


@dataclass(frozen=True, kw_only=True)
class TokenSaliency(Figure):
    """The tokens of a text in boxes; the first output colors them."""

    script: ClassVar[str] = "token_saliency"

    title: str
    tokens: Sequence[str]
    columns: Sequence[SaliencyColumn]
    detail: str = ""
    groups: Sequence[tuple[str, int]] = ()  # name and number of tokens, such as source and target
    is_signed: bool = False  # values may be negative; otherwise they are fractions of 1
    note: str = ""

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("there is no output to show", fix="pass one column at least")
        for column in self.columns:
            if len(column.values) != len(self.tokens):
                raise InputError(
                    f"column {column.name!r} has {len(column.values)} values for "
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
            "kind": "token saliency",
            "title": self.title,
            "tokens": list(self.tokens),
            "columns": [
                {"name": one.name, "token": one.token, "values": list(one.values)}
                for one in self.columns
            ],
        }

    def element(self) -> Element:
        """The figure as part of a page, with the data of its script."""
        values = {
            "tokens": list(self.tokens),
            "signed": self.is_signed,
            "decimals": self._decimals,
            "opacity": MAX_OPACITY,
            "columns": [
                {
                    "name": one.name,
                    "detail": one.detail,
                    "token": one.token,
                    "values": [float(f"{value:.{_DIGITS}g}") for value in one.values],
                }
                for one in self.columns
            ],
        }
        note = [Element("figcaption", self.note)] if self.note else []
        return Element(
            "figure",
            self.svg(),
            json_script(values),
            *note,
            class_="wide",
            data_kind="token-saliency",
        )

    def svg(self, *children: Element) -> Element:
        layout = self._layout
        return Element(
            "svg",
            *children,
            draw_heading(self.title, self.detail),
            Element("g", *self._draw_outputs(layout)),
            Element("g", *self._draw_tokens(layout), class_="data"),
            class_="lines saliency",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {layout.height + 2 * MARGIN:.0f}",
            role="group",
            aria_label=f"{self.title}: {len(self.tokens)} tokens",
        )

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout.of(self)

    def _draw_outputs(self, layout: "_Layout") -> Iterator[Element]:
        """The names of the outputs; the first one is selected."""
        for number, (column, (x, y, width)) in enumerate(
            zip(self.columns, layout.outputs, strict=True)
        ):
            yield Element(
                "g",
                Element("title", f"{column.name} {column.detail}".strip()),
                Element("rect", x=x, y=y, width=width, height=BOX_HEIGHT, rx=8),
                draw_text(shorten_token(column.name), x + width / 2, y + 15, class_="middle"),
                draw_text(column.detail, x + width / 2, y + 29, class_="middle muted small"),
                class_="output selected" if number == 0 else "output",
                data_column=number,
            )

    def _draw_tokens(self, layout: "_Layout") -> Iterator[Element]:
        for name, y in layout.labels:
            yield draw_text(name, 0, y, class_="muted")
        column = self.columns[0]
        peak = max((abs(value) for value in column.values), default=0.0) or 1.0
        outputs = {one.token for one in self.columns}
        for number, (token, value, (x, y, width)) in enumerate(
            zip(self.tokens, column.values, layout.boxes, strict=True)
        ):
            shade = MAX_OPACITY * abs(value) / peak
            kinds = ["token", *(["made"] if number in outputs else [])]
            kinds += ["at"] if number == column.token else []
            yield Element(
                "g",
                Element("title", f"{token}: {self._format_exact(value)}"),
                Element(
                    "rect",
                    x=x,
                    y=y,
                    width=width,
                    height=BOX_HEIGHT,
                    rx=3,
                    class_="less" if value < 0 else "more",
                    fill_opacity=f"{shade:.3f}",
                ),
                draw_text(shorten_token(token), x + width / 2, y + 15, class_="middle"),
                draw_text(
                    self._format_short(value), x + width / 2, y + 29, class_="middle muted small"
                ),
                class_=" ".join(kinds),
                data_token=number,
            )

    @cached_property
    def _decimals(self) -> int:
        """So many that the largest of all signed values has two digits."""
        largest = max((abs(value) for one in self.columns for value in one.values), default=0.0)
        return min(max(0, 1 - math.floor(math.log10(largest))), 20) if largest > 0 else 0

    def _format_short(self, value: float) -> str:
        if self.is_signed:
            text = f"{value:+.{self._decimals}f}"
            return text if text.strip("+-0.") else ""
        return format_percent(value, 0) if value >= _SMALLEST else ""

    def _format_exact(self, value: float) -> str:
        return f"{value:+.5g}" if self.is_signed else format_percent(value, 2)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Positions of the outputs and of the tokens."""

    outputs: Sequence[Box]
    boxes: Sequence[Box]
    labels: Sequence[tuple[str, float]]  # names of groups of tokens, and their y
    height: float

    @classmethod
    def of(cls, figure: TokenSaliency) -> "_Layout":
        narrowest = _NARROWEST_SIGNED if figure.is_signed else _NARROWEST
        names = [max(one.name, one.detail, key=text_width) for one in figure.columns]
        outputs = place_boxes(names, _TOP + _LABEL, narrowest=narrowest)
        labels = [("output" if len(outputs) == 1 else "outputs", _TOP + 12)]
        y = outputs[-1][1] + LINE_HEIGHT + 6
        groups = figure.groups or [("text", len(figure.tokens))]
        ends = list(accumulate(count for _, count in groups))
        boxes: list[Box] = []
        for (name, count), end in zip(groups, ends, strict=True):
            labels.append((name, y + 12))
            some = figure.tokens[end - count : end]
            boxes += place_boxes(some, y + _LABEL, narrowest=narrowest)
            y = (boxes[-1][1] if some else y) + LINE_HEIGHT + 6
        return cls(outputs=outputs, boxes=boxes, labels=labels, height=y)
