"""The frame of a chart: its heading, its legend, its grid and what is written along it."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cloze.plot.line import Look
from cloze.plot.numbers import short, tick_labels
from cloze.plot.scale import Scale
from cloze.plot.svg import Element, Value

FONT = 12
ROW = 19  # height of a row of the legend
_LETTER = 0.62  # of the font's size: about what letters take in the widest of the usual fonts
_SAMPLE = 24  # width of the line beside a name
_LONGEST = 60  # letters of a name


@dataclass(frozen=True, kw_only=True)
class Box:
    """The picture, and the part of it that the axes enclose."""

    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float


def text_width(text: str) -> float:
    """About how wide a text is, without a font to measure it by."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return FONT * (_LETTER * (len(text) - wide) + wide)


def heading(title: str, detail: str) -> Element:
    parts = [Element("tspan", title, class_="title")]
    if detail:
        parts.append(Element("tspan", detail, class_="muted", dx=8))
    return Element("text", *parts, x=0, y=15)


def legend(entries: Sequence[tuple[str, Look]], width: float, top: float) -> list[list[Element]]:
    """Rows of names, each with a sample of its line; as many as the width asks for."""
    rows: list[list[Element]] = []
    across = width
    for name, look in entries:
        shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        needed = _SAMPLE + 8 + text_width(shown) + 14
        if not rows or across + needed > width:
            rows.append([])
            across = 0.0
        middle = top + ROW * (len(rows) - 0.5)
        rows[-1] += _sample(look, across, middle)
        rows[-1].append(label(shown, across + _SAMPLE + 8, middle + 4))
        across += needed
    return rows


def grid(
    box: Box, x: Scale, y: Scale, *, x_label: str = "", percents: bool = False
) -> Iterator[Element]:
    """Lines across at round values, and both axes' numbers."""
    for place, text in _labelled(y, 5, percents=percents):
        yield Element("path", d=f"M{box.left:.1f} {place:.1f}H{box.right:.1f}", class_="grid")
        yield label(text, box.left - 8, place + 4, class_="muted end")
    yield Element("path", d=f"M{box.left:.1f} {box.bottom:.1f}H{box.right:.1f}", class_="axis")
    for place, text in _labelled(x, int((box.right - box.left) // 80)):
        yield Element("path", d=f"M{place:.1f} {box.bottom:.1f}v4", class_="axis")
        yield label(text, place, box.bottom + 17, class_="muted middle")
    if x_label:
        yield label(x_label, box.right, box.bottom + 33, class_="muted end")


def widest_label(y: Scale, *, percents: bool) -> float:
    """How much room the numbers beside the axis need."""
    return max((text_width(text) for _, text in _labelled(y, 5, percents=percents)), default=0.0)


def label(text: str, x: float, y: float, **attributes: Value) -> Element:
    return Element("text", text, x=x, y=y, **attributes)


def _labelled(scale: Scale, about: int, *, percents: bool = False) -> Iterator[tuple[float, str]]:
    ticks = scale.ticks(about)
    uneven = scale.log and not percents
    texts = map(short, ticks) if uneven else tick_labels(ticks, percents=percents)
    return zip(map(scale, ticks), texts, strict=True)


def _sample(look: Look, left: float, middle: float) -> Iterator[Element]:
    yield Element("path", d=f"M{left:.1f} {middle:.1f}h{_SAMPLE}", class_=look.css)
    if look.mark:
        place = f"translate({left + _SAMPLE / 2:.1f} {middle:.1f})"
        yield Element("path", d=look.mark, class_=f"mark {look.css}", transform=place)
