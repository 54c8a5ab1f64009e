"""Texts with highlighted parts, on pages and in notebooks: spans of tags, answers in a context."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from cloze.plot.svg import Child, Element

MAX_CONTEXT = 400  # characters before the first mark and after the last
_HUE_STEP = 30  # the page's style sheet has the hues 0, 30, …, 330
# hues of common labels; others have one that depends on their name
_HUES = {
    **dict.fromkeys(("PER", "PERSON"), 207),
    **dict.fromkeys(("ORG", "ORGANIZATION"), 135),
    **dict.fromkeys(("LOC", "LOCATION", "GPE"), 28),
    **dict.fromkeys(("MISC", "NORP"), 300),
    **dict.fromkeys(("DATE", "TIME"), 180),
    **dict.fromkeys(("MONEY", "PERCENT", "QUANTITY"), 55),
    # of answers
    "gold": 135,
    "predicted": 28,
    "gold and predicted": 207,
}


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A part of a text to highlight."""

    start: int
    end: int
    label: str = ""  # shown after it
    tooltip: str = ""
    hue: int | None = None  # None: that of the label


def find_hue(mark: Mark) -> int:
    """The hue of a mark, from 0 to 359: its own, or that of its label without B- and I-."""
    if mark.hue is not None:
        return mark.hue
    name = mark.label.split("-", 1)[1] if mark.label[1:2] == "-" else mark.label
    known = _HUES.get(name.upper(), _HUES.get(name))
    return crc32(name.encode(errors="replace")) % 360 if known is None else known


def split_text(
    text: str, marks: Sequence[Mark], max_context: int = MAX_CONTEXT
) -> Iterator[tuple[str, Mark | None]]:
    """The parts of a text, marked and not; `marks` are sorted and do not overlap.

    A long text without marks at its ends is shortened there.
    """
    first, last = (marks[0].start, marks[-1].end) if marks else (0, 0)
    begin = max(0, first - max_context)
    stop = min(len(text), max(last, begin) + max_context)
    if begin:  # not within a word
        begin += len(text[begin:first].partition(" ")[0]) if " " in text[begin:first] else 0
        yield "…", None
    if stop < len(text) and " " in (rest := text[max(last, begin) : stop]):
        stop -= len(rest.rpartition(" ")[2])
    end = begin
    for mark in marks:
        yield text[end : mark.start], None
        yield text[mark.start : mark.end], mark
        end = mark.end
    yield text[end:stop] + ("…" if stop < len(text) else ""), None


@dataclass(frozen=True, kw_only=True)
class MarkedText:
    """A text with highlighted parts, as part of a page."""

    text: str
    marks: Sequence[Mark] = ()
    title: str = ""  # before the text
    max_context: int = MAX_CONTEXT

    @property
    def data(self) -> dict[str, Any]:
        """The text and the character offsets of its marks."""
        marks = [{"start": one.start, "end": one.end, "label": one.label} for one in self.marks]
        return {"kind": "marked text", "title": self.title, "text": self.text, "marks": marks}

    def element(self) -> Element:
        """The HTML element."""
        parts = split_text(self.text, self.marks, self.max_context)
        children: list[Child] = [
            part if mark is None else _render_mark(part, mark) for part, mark in parts
        ]
        title = [Element("span", self.title, class_="muted")] if self.title else []
        return Element("p", *title, Element("span", *children, dir="auto"), class_="marked")


def _render_mark(text: str, mark: Mark) -> Element:
    label = [Element("small", mark.label)] if mark.label else []
    css = f"h{find_hue(mark) // _HUE_STEP}"
    return Element("mark", text, *label, class_=css, title=mark.tooltip or None)
