"""Attention weights of all layers and heads, as an interactive figure.

The drawing without script has two parts: the lines of one layer, from each query to the keys, and a
small picture of every head. The script (scripts/attention.js) adds a matrix, the selection of
layers, heads and tokens, and the products of query and key.

l layers, h heads, q queries, k keys.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError
from cloze.plot.attention_data import (
    MAX_VECTORS,
    MAX_WEIGHTS,
    Floats,
    HeadVectors,
    WeightSelection,
    encode_pictures,
    select_weights,
)
from cloze.plot.axes import FONT, draw_heading, draw_text, text_width
from cloze.plot.format import format_percent, shorten_text
from cloze.plot.svg import MARGIN, WIDE, Element, Figure, json_script

MAX_VALUES = 1_000_000  # weights in `data`; of more, only the largest are listed
_LISTED = 200_000  # of them
_TOP = 56.0
_LEFT_PART = 500.0  # width of the lines
_GRID_LEFT = 548.0
_ROW = (7.0, 20.0)  # minimum and maximum height of a token
_TALL = 560.0  # height of the lines, if there are many tokens
_MAX_NAME = 16  # characters of a token
_NUMBER = 40.0  # width of a weight in percent
_NAMED = 0.045  # smallest weight with a number
_MAX_LINES = 4000  # of a drawing
_MAX_SMALL_LINES = 60  # of the picture of one head
_VISIBLE = 0.03  # opacity of the faintest line that is drawn
_SHADES = (0.1, 0.3, 0.6, 0.9)  # of a picture: its lines are grouped, so that it is small


@dataclass(frozen=True, kw_only=True)
class TokenSide:
    """The tokens that attend, or that are attended to."""

    tokens: Sequence[str]
    words: Sequence[tuple[str, int, int]] = ()  # text, first token, the one after its last
    sequences: Sequence[int | None] = ()  # of each token: 0 the text, 1 its pair, None neither

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the tokens."""
        return {
            "tokens": list(self.tokens),
            "words": [list(word) for word in self.words],
            "sequences": list(self.sequences),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionMap:
    """The weights of one kind of attention: encoder, decoder, cross-attention."""

    name: str
    queries: TokenSide
    keys: TokenSide
    weights: Floats  # l h q k
    layers: Sequence[int]  # their numbers, from 1
    heads: Sequence[int]
    vectors: HeadVectors | None = None

    def __post_init__(self) -> None:
        sides = (self.layers, self.heads, self.queries.tokens, self.keys.tokens)
        expected = tuple(map(len, sides))
        if self.weights.shape != expected:
            raise InputError(
                f"{self.name} has weights of shape {self.weights.shape}, but there are "
                f"{' × '.join(map(str, expected))} layers, heads, queries and keys",
                fix="pass one weight for each of them",
            )

    @cached_property
    def data(self) -> dict[str, Any]:
        """The exact weights; of more than a million, the largest."""
        found: dict[str, Any] = {
            "name": self.name,
            "queries": self.queries.to_dict(),
            "keys": self.keys.to_dict(),
            "layers": list(self.layers),
            "heads": list(self.heads),
        }
        if self.weights.size <= MAX_VALUES:
            return found | {"weights": self.weights.tolist(), "retained": 1.0}
        selection = select_weights(self.weights, _LISTED)
        largest = np.argwhere(self.weights >= selection.threshold)
        values = self.weights[tuple(largest.T)]
        rows = zip(largest.tolist(), values.tolist(), strict=True)
        return found | {
            "largest": [
                [self.layers[layer], self.heads[head], query, key, weight]
                for (layer, head, query, key), weight in rows
            ],
            "retained": float(values.sum(dtype=np.float64) / self.weights.sum(dtype=np.float64)),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionFigure(Figure):
    """Lines from token to tokens, a matrix, and a small picture of every layer and head."""

    script: ClassVar[str] = "attention_data attention_panels attention"

    title: str
    maps: Sequence[AttentionMap]
    layer: int | None = None  # number of the layer that is shown first; None: the middle one
    head: int | None = None  # None: all of them
    token: int | None = None  # index of the query that is selected
    note: str = ""
    max_weights: int = field(default=MAX_WEIGHTS)

    @property
    def data(self) -> dict[str, Any]:
        """The exact weights."""
        maps = [one.data for one in self.maps]
        return {"kind": "attention", "title": self.title, "maps": maps}

    @cached_property
    def selections(self) -> list[WeightSelection]:
        """The weights that a page contains, for each map."""
        total = sum(one.weights.size for one in self.maps)
        return [
            select_weights(one.weights, int(self.max_weights * one.weights.size / max(total, 1)))
            for one in self.maps
        ]

    @property
    def retained_attention(self) -> float:
        """The fraction of the attention that a page contains."""
        sizes = [len(one.counts) for one in self.selections]
        parts = zip(self.selections, sizes, strict=True)
        return sum(one.total_retained * size for one, size in parts) / max(sum(sizes), 1)

    @property
    def width(self) -> float:
        return WIDE

    def element(self) -> Element:
        """The figure as part of a page, with the data of its script."""
        notes = [text for text in (self._describe_retained(), self.note) if text]
        caption = [Element("figcaption", " ".join(notes))] if notes else []
        return Element(
            "figure",
            self.svg(),
            *caption,
            json_script(self._script_data()),
            class_="wide",
            data_kind="attention",
        )

    def _describe_retained(self) -> str:
        if all(selection.code <= 1 for selection in self.selections):
            return ""
        smallest = max(selection.threshold for selection in self.selections)
        return (
            f"Weights below {format_percent(smallest, 2)} are left out, except the largest of each "
            f"token; the others are {format_percent(self.retained_attention)} of the attention."
        )

    def _script_data(self) -> dict[str, Any]:
        maps = []
        for one, selection in zip(self.maps, self.selections, strict=True):
            vectors = one.vectors
            layer = min(self._layer_index(), len(one.layers) - 1)
            maps.append(
                {
                    "name": one.name,
                    "queries": one.queries.to_dict(),
                    "keys": one.keys.to_dict(),
                    "layers": list(one.layers),
                    "heads": list(one.heads),
                    "colors": [
                        [color_head(n, len(one.heads), dark=dark) for n in range(len(one.heads))]
                        for dark in (False, True)
                    ],
                    "weights": selection.to_dict(),
                    "pictures": encode_pictures(one.weights) if selection.code > 1 else None,
                    "vectors": vectors and vectors.to_dict(MAX_VECTORS // len(self.maps), layer),
                }
            )
        return {
            "title": self.title,
            "maps": maps,
            "layer": self._layer_index(),
            "head": None if self.head is None else list(self.maps[0].heads).index(self.head),
            "token": self.token,
            "retained": round(self.retained_attention, 5),
        }

    def _layer_index(self) -> int:
        layers = list(self.maps[0].layers)
        return layers.index(self.layer) if self.layer in layers else len(layers) // 2

    # The drawing without script.

    def svg(self, *children: Element) -> Element:
        one = self.maps[0]
        lines, height = self._draw_lines(one)
        pictures, grid_height = _draw_pictures(one)
        total = max(height, grid_height)
        layer, layers = self._layer_index(), one.layers
        shown = "all heads" if self.head is None else f"head {self.head}"
        detail = f"{one.name}, layer {layers[layer]}, {shown}"
        return Element(
            "svg",
            *children,
            draw_heading(self.title, detail if layers else ""),
            Element("g", *lines, class_="data"),
            Element("g", *pictures, class_="data"),
            class_="lines attention",
            viewBox=f"{-MARGIN} {-MARGIN} {WIDE + 2 * MARGIN} {total + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {' '.join(one.queries.tokens)}",
        )

    def _draw_lines(self, one: AttentionMap) -> tuple[list[Element], float]:
        """The tokens twice, and the weights of one layer between them."""
        longest = max(len(one.queries.tokens), len(one.keys.tokens), 1)
        row = min(max(_TALL / longest, _ROW[0]), _ROW[1])
        size = min(FONT, 0.9 * row)
        names = [
            shorten_text(token, _MAX_NAME) for token in (*one.queries.tokens, *one.keys.tokens)
        ]
        side = max(map(text_width, names), default=0.0) * size / FONT + 8
        # the weights of a selected token are written beside the keys
        left, right = side, _LEFT_PART - side - (0 if self.token is None else _NUMBER)
        heads = range(len(one.heads))
        chosen = [n for n in heads if self.head is None or one.heads[n] == self.head]
        drawn = list(self._list_lines(one, chosen))
        parts = [
            Element(
                "path",
                Element(
                    "title",
                    f"{one.queries.tokens[query]} → {one.keys.tokens[key]}, "
                    f"head {one.heads[head]} – {format_percent(weight)}",
                ),
                d=_curve(left, _TOP + (query + 0.5) * row, right, _TOP + (key + 0.5) * row),
                stroke=color_head(head, len(heads)),
                stroke_opacity=f"{min(1.0, weight * 1.1):.2f}",
                class_="curve",
            )
            for weight, head, query, key in drawn
        ]
        for number, token in enumerate(one.queries.tokens):
            y = _TOP + (number + 0.5) * row + 0.35 * size
            if number == self.token:
                top = _TOP + number * row
                parts.append(
                    Element("rect", x=0, y=top, width=left - 1, height=row, rx=4, class_="marked")
                )
            parts.append(
                draw_text(shorten_text(token, _MAX_NAME), left - 6, y, class_="end", font_size=size)
            )
        for number, token in enumerate(one.keys.tokens):
            y = _TOP + (number + 0.5) * row + 0.35 * size
            name = shorten_text(token, _MAX_NAME)
            parts.append(draw_text(name, right + 6, y, font_size=size))
            weight = 0.0
            if self.token is not None:
                weight = float(one.weights[self._layer_index()][chosen, self.token, number].mean())
            if weight >= _NAMED:
                text, x = format_percent(weight, 0), _LEFT_PART - 4
                parts.append(draw_text(text, x, y, class_="muted end", font_size=size))
        return parts, _TOP + longest * row + 8

    def _list_lines(
        self, one: AttentionMap, heads: Sequence[int]
    ) -> Iterator[tuple[float, int, int, int]]:
        """Weight, head, query and key of each line, the faintest first."""
        weights = one.weights[self._layer_index()]
        queries = range(len(one.queries.tokens)) if self.token is None else [self.token]
        found: list[tuple[float, int, int, int]] = []
        for head in heads:
            for query in queries:
                row = weights[head, query]
                keys = np.flatnonzero(row >= _VISIBLE).tolist()
                found += [(float(row[key]), head, query, key) for key in keys]
        found.sort()
        yield from found[-_MAX_LINES:]


def color_head(head: int, heads: int, *, dark: bool = False) -> str:
    """The color of a head, for a light or a dark background.

    Hues go around the circle of OKLCH (Ottosson 2020), where colors of one lightness look equally
    light, so that no head is fainter than the others; neighbours differ in lightness, too.
    """
    lightness = (0.55, 0.64, 0.48)[head % 3] if heads > 3 else 0.56  # noqa: PLR2004
    if dark:
        lightness += 0.17
    hue = 2 * math.pi * (head / max(heads, 1) + 0.69)
    a, b = 0.15 * math.cos(hue), 0.15 * math.sin(hue)
    long, medium, short = (
        (lightness + x * a + y * b) ** 3
        for x, y in (
            (0.3963377774, 0.2158037573),
            (-0.1055613458, -0.0638541728),
            (-0.0894841775, -1.2914855480),
        )
    )
    channels = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_encode_channel(channel):02x}" for channel in channels)


def _encode_channel(linear: float) -> int:
    """A channel of sRGB, 0 … 255."""
    value = min(max(linear, 0.0), 1.0)
    encoded = 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055  # noqa: PLR2004
    return round(255 * encoded)


def _draw_pictures(one: AttentionMap) -> tuple[list[Element], float]:
    """A small picture of each head, layers from top to bottom."""
    heads, layers = max(len(one.heads), 1), max(len(one.layers), 1)
    cell = min((WIDE - _GRID_LEFT - 18) / heads, 92.0)
    gap = min(6.0, cell / 8)
    tall = cell if layers <= heads else max(cell * heads / layers, 18.0)
    parts = [
        draw_text(
            str(number),
            _GRID_LEFT + 18 + (n + 0.5) * cell,
            _TOP - 6,
            class_="muted middle",
            font_size=10,
        )
        for n, number in enumerate(one.heads)
    ]
    parts.append(draw_text("head", _GRID_LEFT - 14, _TOP - 6, class_="muted", font_size=10))
    for layer, number in enumerate(one.layers):
        y = _TOP + layer * tall
        parts.append(
            draw_text(str(number), _GRID_LEFT + 10, y + tall / 2, class_="muted end", font_size=10)
        )
        for head in range(len(one.heads)):
            x = _GRID_LEFT + 18 + head * cell
            parts.append(
                Element(
                    "g",
                    Element("title", f"layer {number}, head {one.heads[head]}"),
                    Element(
                        "rect",
                        x=x,
                        y=y,
                        width=cell - gap,
                        height=tall - gap,
                        rx=2,
                        fill="#8a94a3",
                        stroke="none",
                        fill_opacity="0.12",
                    ),
                    *_draw_picture(one.weights[layer, head], x, y, cell - gap, tall - gap),
                    stroke=color_head(head, len(one.heads)),
                    class_="picture",
                )
            )
    return parts, _TOP + layers * tall + 8


def _draw_picture(
    weights: NDArray[np.float32], x: float, y: float, width: float, height: float
) -> Iterator[Element]:
    """The largest weights of one head as straight lines, in a few shades."""
    queries, keys = weights.shape
    if not queries or not keys:
        return
    flat = weights.ravel()
    count = min(_MAX_SMALL_LINES, flat.size)
    largest = np.argpartition(flat, flat.size - count)[-count:]
    bounds = (*_SHADES[1:], math.inf)
    for low, high in zip(_SHADES, bounds, strict=True):
        chosen = largest[(flat[largest] >= low) & (flat[largest] < high)]
        if not len(chosen):
            continue
        path = "".join(
            f"M{x + 2:.1f} {y + (n // keys + 0.5) * height / queries:.1f}"
            f"L{x + width - 2:.1f} {y + (n % keys + 0.5) * height / keys:.1f}"
            for n in sorted(chosen.tolist())
        )
        opacity = min(1.0, low + 0.1)
        yield Element("path", d=path, stroke_opacity=f"{opacity:.1f}")


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
