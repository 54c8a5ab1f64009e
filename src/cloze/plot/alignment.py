"""Word alignments of a translation: as a heatmap, and as lines between words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.errors import InputError
from cloze.plot.axes import draw_heading, draw_text, text_width
from cloze.plot.format import format_percent
from cloze.plot.heatmap import Heatmap
from cloze.plot.svg import MARGIN, NARROW, Element, Figure

_GAP = 18.0  # between two words
_TOP, _LINES = 48.0, 110.0  # top of the first row of words, and height of the lines
_FAINT = 0.15  # minimum opacity of a line


def alignment_heatmap(
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    *,
    title: str = "Alignment",
    note: str = "",
) -> Heatmap:
    """Attention weights of each target word over the source words; each row sums to one."""
    return Heatmap(
        title=title,
        values=weights,
        rows=list(target),
        columns=list(source),
        row_title="target",
        column_title="source",
        percent=True,
        note=note,
    )


@dataclass(frozen=True, kw_only=True)
class AlignmentLines(Figure):
    """Two rows of words, and a line from each target word to the source word it attends to most.

    The larger the weight, the more opaque the line.
    """

    title: str
    source: Sequence[str]
    target: Sequence[str]
    weights: Sequence[Sequence[float]]  # target words × source words
    note: str = ""

    def __post_init__(self) -> None:
        sizes = {len(row) for row in self.weights}
        if len(self.weights) != len(self.target) or sizes - {len(self.source)}:
            raise InputError(
                f"alignment {self.title!r} has {len(self.target)} × {len(self.source)} words, and "
                f"{len(self.weights)} rows of {' and '.join(map(str, sorted(sizes)))} weights",
                fix="pass one weight per source word for each target word",
            )

    @property
    def links(self) -> list[tuple[int, int, float]]:
        """Source index, target index and weight of each line."""
        found = []
        for at, row in enumerate(self.weights):
            if row:
                best = max(range(len(row)), key=row.__getitem__)
                found.append((best, at, float(row[best])))
        return found

    @property
    def data(self) -> dict[str, Any]:
        """All values, unrounded."""
        return {
            "kind": "alignment",
            "title": self.title,
            "source": list(self.source),
            "target": list(self.target),
            "links": [list(link) for link in self.links],
        }

    @property
    def width(self) -> float:
        return max(NARROW, _row_width(self.source), _row_width(self.target))

    def element(self) -> Element:
        """The figure as part of a page."""
        note = [Element("figcaption", self.note)] if self.note else []
        return Element("figure", self.svg(), *note, class_="wide" if self.width > NARROW else None)

    def svg(self, *children: Element) -> Element:
        bottom = _TOP + _LINES
        height = bottom + 24
        first, second = (_word_centers(words, self.width) for words in (self.source, self.target))
        return Element(
            "svg",
            *children,
            draw_heading(self.title, ""),
            Element("g", *self._draw_links(first, second, bottom), class_="data"),
            Element(
                "g",
                *_draw_words(self.source, first, _TOP),
                *_draw_words(self.target, second, bottom + 12),
            ),
            class_="lines",
            viewBox=f"{-MARGIN} {-MARGIN} {self.width + 2 * MARGIN:.0f} {height + 2 * MARGIN:.0f}",
            role="img",
            aria_label=f"{self.title}: {' '.join(self.source)} → {' '.join(self.target)}",
        )

    def _draw_links(
        self, first: Sequence[float], second: Sequence[float], bottom: float
    ) -> Iterator[Element]:
        for source, target, weight in self.links:
            title = f"{self.source[source]} → {self.target[target]} – {format_percent(weight)}"
            yield Element(
                "path",
                Element("title", title),
                d=f"M{first[source]:.1f} {_TOP + 6:.1f}L{second[target]:.1f} {bottom:.1f}",
                class_="c0",
                stroke_opacity=f"{max(_FAINT, min(weight, 1.0)):.3f}",
            )


def _row_width(words: Sequence[str]) -> float:
    return sum(text_width(word) + _GAP for word in words)


def _word_centers(words: Sequence[str], width: float) -> list[float]:
    """The center of each word, in a centered row."""
    at = (width - _row_width(words)) / 2
    found = []
    for word in words:
        wide = text_width(word) + _GAP
        found.append(at + wide / 2)
        at += wide
    return found


def _draw_words(words: Sequence[str], centers: Sequence[float], y: float) -> list[Element]:
    return [draw_text(word, x, y, class_="middle") for word, x in zip(words, centers, strict=True)]
