"""What a page is put together from, beside charts: facts, tables, bars, quotes, and grids of them.

Whatever has the exact `data` and an `element` that shows it can stand on a page.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

from cloze.errors import InputError
from cloze.plot.numbers import percent
from cloze.plot.svg import Child, Element

Cell: TypeAlias = str | int | float | bool | None
_BAR = 100  # width of a full bar, in its own drawing
_SHORT = 40  # letters of a cell that stays in one line, such as a file's name with a number
_RARE = 0.01  # below, a tenth of a per cent says little


class Part(Protocol):
    """One thing to look at."""

    @property
    def data(self) -> dict[str, Any]:
        """What is shown, exactly, as JSON could hold it."""
        ...

    def element(self) -> Element:
        """The part as HTML."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number that matters: as it reads, and as it is."""

    label: str
    text: str
    value: Cell = None
    detail: str = ""


@dataclass(frozen=True)
class Facts:
    """Numbers that matter, in a row."""

    facts: Sequence[Fact]

    @property
    def data(self) -> dict[str, Any]:
        facts = [asdict(fact) | {"value": plain(fact.value)} for fact in self.facts]
        return {"kind": "facts", "facts": facts}

    def element(self) -> Element:
        return Element("dl", *map(_fact, self.facts), class_="facts")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells; a column of numbers is set to the right, and only long text is broken."""

    rows: Sequence[Sequence[Cell]]
    columns: Sequence[str] = ()
    title: str = ""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows} | ({len(self.columns)} if self.columns else set())
        if len(widths) > 1:
            raise InputError(
                f"table {self.title!r} has rows of {' and '.join(map(str, sorted(widths)))} cells",
                fix="give each row as many cells as there are columns",
            )

    @property
    def data(self) -> dict[str, Any]:
        return {
            "kind": "table",
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[plain(cell) for cell in row] for row in self.rows],
        }

    def element(self) -> Element:
        parts = [Element("caption", self.title)] if self.title else []
        looks = [_look(column) for column in zip(*self.rows, strict=True)]
        looks = looks or ["short"] * len(self.columns)
        if self.columns:
            names = zip(self.columns, looks, strict=True)
            heads = (
                Element("th", name, scope="col", class_=look if look == "number" else None)
                for name, look in names
            )
            parts.append(Element("thead", Element("tr", *heads)))
        rows = (Element("tr", *map(_cell, row, looks)) for row in self.rows)
        table = Element("table", *parts, Element("tbody", *rows))
        return Element("div", table, class_="card")


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Words with a number from 0 to 1 each, such as a probability or a cosine."""

    rows: Sequence[tuple[str, float]]
    title: str = ""
    percents: bool = True
    right: str | None = None  # the word that stands out among them

    @property
    def data(self) -> dict[str, Any]:
        rows = [[label, plain(value)] for label, value in self.rows]
        return {"kind": "bars", "title": self.title, "rows": rows, "right": self.right}

    def element(self) -> Element:
        caption = [Element("caption", self.title)] if self.title else []
        rows = (self._row(label, value) for label, value in self.rows)
        return Element("table", *caption, Element("tbody", *rows), class_="bars")

    def _row(self, label: str, value: float) -> Element:
        length = min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
        drawing = Element(
            "svg",
            Element("rect", width=_BAR * length, height=1),
            viewBox=f"0 0 {_BAR} 1",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
        shown = percent(value, 1 if value >= _RARE else 2) if self.percents else f"{value:.2f}"
        return Element(
            "tr",
            Element(
                "td", Element("div", drawing, Element("span", label, dir="auto"), class_="bar")
            ),
            Element("td", shown, class_="number"),
            class_="right" if label == self.right else None,
        )


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A text that was given to a model, with what stands out in it."""

    text: str
    marked: Sequence[str] = ()
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        return {"kind": "quote", "text": self.text, "note": self.note}

    def element(self) -> Element:
        note = [Element("div", self.note, class_="muted", dir="auto")] if self.note else []
        return Element("blockquote", *_marked(self.text, self.marked), *note, dir="auto")


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    text: str

    @property
    def data(self) -> dict[str, Any]:
        return {"kind": "text", "text": self.text}

    def element(self) -> Element:
        return Element("p", self.text, class_="muted")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Parts side by side, as many as the window has room for.

    Packed ones fill column after column instead of row after row, where heights differ much.
    """

    parts: Sequence[Part]
    packed: bool = False

    @property
    def data(self) -> dict[str, Any]:
        return {"kind": "grid", "parts": [part.data for part in self.parts]}

    def element(self) -> Element:
        css = "packed" if self.packed else "grid"
        return Element("div", *(part.element() for part in self.parts), class_=css)


@dataclass(frozen=True, kw_only=True)
class Card:
    """Parts that belong together: the first over the others, those side by side."""

    head: Part
    parts: Sequence[Part]

    @property
    def data(self) -> dict[str, Any]:
        return {
            "kind": "card",
            "head": self.head.data,
            "parts": [part.data for part in self.parts],
        }

    def element(self) -> Element:
        columns = Element("div", *(part.element() for part in self.parts), class_="columns")
        return Element("div", self.head.element(), columns, class_="card")


def plain(value: Cell) -> Cell:
    """The same, where JSON has a word for it: it has none for NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fact(fact: Fact) -> Element:
    detail = [Element("dd", fact.detail, class_="muted")] if fact.detail else []
    value = Element("dd", fact.text, class_="value")
    return Element("div", Element("dt", fact.label), value, *detail, class_="fact")


def _cell(cell: Cell, look: str) -> Element:
    return Element("td", _text(cell), class_=look, dir="auto")


def _text(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str | bool):
        return cell if isinstance(cell, str) else json.dumps(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.6g}"


def _look(column: Sequence[Cell]) -> str:
    if all(map(_is_number, column)):
        return "number"
    return "short" if all(len(_text(cell)) <= _SHORT for cell in column) else "long"


def _is_number(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _marked(text: str, marked: Iterable[str]) -> list[Child]:
    pieces: list[Child] = [text]
    for word in marked:
        pieces = [
            part
            for piece in pieces
            for part in (_split(piece, word) if isinstance(piece, str) else [piece])
        ]
    return pieces


def _split(text: str, word: str) -> list[Child]:
    first, *rest = text.split(word)
    found: list[Child] = [first]
    for piece in rest:
        found += [Element("mark", word), piece]
    return found
