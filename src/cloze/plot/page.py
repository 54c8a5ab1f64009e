"""Self-contained HTML pages: key figures, tables, bars, quotes, charts, and grids of them.

Styles and scripts are inside the page, and it loads nothing. The content security policy allows
them by their hashes, so that a browser would run no others. A part of a page with a `script` (see
`Figure`) adds its script and its style, once for all parts that have the same.
"""

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from cloze.errors import InputError
from cloze.files import write_text
from cloze.plot.format import format_percent
from cloze.plot.svg import Child, Element, load_asset, load_style

Cell: TypeAlias = str | int | float | bool | None
_BAR = 100  # width of a full bar in units of its SVG
_SHORT = 40  # cells of at most this many characters are not wrapped
_NARROW = 58  # characters of a table's row that fit into a small window
_RARE = 0.01  # smaller fractions get one more decimal
# a formatted number; a text of digits only may be a label
_NUMERIC = re.compile(r"[<+−-]?(?:[\d,]*\.\d+|\d[\d,]*(?=\s?%))(?:\s?%)?")


class PagePart(Protocol):
    """An element of a page."""

    @property
    def data(self) -> dict[str, Any]:
        """The exact values shown, ready for JSON."""
        ...

    def element(self) -> Element:
        """The HTML element."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A key figure: its label, its formatted text and its exact value."""

    label: str
    text: str
    value: Cell = None
    detail: str = ""


@dataclass(frozen=True)
class Facts:
    """Key figures in a row."""

    facts: Sequence[Fact]

    @property
    def data(self) -> dict[str, Any]:
        facts = [asdict(fact) | {"value": to_json_value(fact.value)} for fact in self.facts]
        return {"kind": "facts", "facts": facts}

    def element(self) -> Element:
        return Element("dl", *map(_render_fact, self.facts), class_="facts")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; columns of numbers are right-aligned, and only long texts are wrapped."""

    rows: Sequence[Sequence[Cell]]
    columns: Sequence[str] = ()
    title: str = ""

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows} | ({len(self.columns)} if self.columns else set())
        if len(widths) > 1:
            raise InputError(
                f"table {self.title!r} has rows of {' and '.join(map(str, sorted(widths)))} cells",
                fix="pass as many cells per row as there are columns",
            )

    @property
    def data(self) -> dict[str, Any]:
        return {
            "kind": "table",
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[to_json_value(cell) for cell in row] for row in self.rows],
        }

    def element(self) -> Element:
        parts = [Element("caption", self.title)] if self.title else []
        classes = [_column_class(column) for column in zip(*self.rows, strict=True)]
        classes = classes or ["short"] * len(self.columns)
        if self.columns:
            names = zip(self.columns, classes, strict=True)
            heads = (
                Element("th", name, scope="col", class_=css if css == "number" else None)
                for name, css in names
            )
            parts.append(Element("thead", Element("tr", *heads)))
        texts = zip(*map(_format_column, zip(*self.rows, strict=True)), strict=True)
        stacks = bool(self.columns) and self._is_wide()
        labels = self.columns if stacks else [None] * len(classes)
        rows = (Element("tr", *map(_render_cell, row, classes, labels)) for row in texts)
        css = "stacks" if stacks else None
        table = Element("table", *parts, Element("tbody", *rows), class_=css)
        return Element("div", table, class_="card")

    def _is_wide(self) -> bool:
        """Whether it does not fit into a small window; its rows are then blocks of lines there."""
        columns = zip(self.columns, *self.rows, strict=True)
        widths = (max(map(_longest_line, column)) for column in columns)
        return sum(min(width, _SHORT) + 2 for width in widths) > _NARROW


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Horizontal bars of values from 0 to 1, such as probabilities or cosines."""

    rows: Sequence[tuple[str, float]]
    title: str = ""
    as_percent: bool = True
    highlighted: str | None = None  # label of the bar to emphasize

    @property
    def data(self) -> dict[str, Any]:
        rows = [[label, to_json_value(value)] for label, value in self.rows]
        return {"kind": "bars", "title": self.title, "rows": rows, "right": self.highlighted}

    def element(self) -> Element:
        caption = [Element("caption", self.title)] if self.title else []
        rows = (self._render_row(label, value) for label, value in self.rows)
        return Element("table", *caption, Element("tbody", *rows), class_="bars")

    def _render_row(self, label: str, value: float) -> Element:
        length = min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
        drawing = Element(
            "svg",
            Element("rect", width=_BAR * length, height=1),
            viewBox=f"0 0 {_BAR} 1",
            preserveAspectRatio="none",
            aria_hidden="true",
        )
        shown = (
            format_percent(value, 1 if value >= _RARE else 2) if self.as_percent else f"{value:.2f}"
        )
        return Element(
            "tr",
            Element(
                "td", Element("div", drawing, Element("span", label, dir="auto"), class_="bar")
            ),
            Element("td", shown, class_="number"),
            class_="right" if label == self.highlighted else None,
        )


@dataclass(frozen=True, kw_only=True)
class Quote:
    """An input text of a model; the substrings in `highlighted` are emphasized."""

    text: str
    highlighted: Sequence[str] = ()
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        return {"kind": "quote", "text": self.text, "note": self.note}

    def element(self) -> Element:
        note = [Element("div", self.note, class_="muted", dir="auto")] if self.note else []
        return Element("blockquote", *_highlight(self.text, self.highlighted), *note, dir="auto")


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph."""

    text: str

    @property
    def data(self) -> dict[str, Any]:
        return {"kind": "text", "text": self.text}

    def element(self) -> Element:
        return Element("p", self.text, class_="muted")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Parts side by side, as many per row as fit.

    If `packed`, they fill column after column, which suits parts of very different heights.
    """

    parts: Sequence[PagePart]
    packed: bool = False

    @property
    def data(self) -> dict[str, Any]:
        return {"kind": "grid", "parts": [part.data for part in self.parts]}

    def element(self) -> Element:
        css = "packed" if self.packed else "grid"
        return Element("div", *(part.element() for part in self.parts), class_=css)


@dataclass(frozen=True, kw_only=True)
class Card:
    """Parts in one frame: the head above the others, which are side by side."""

    head: PagePart
    parts: Sequence[PagePart]
    note: str = ""  # at the bottom

    @property
    def data(self) -> dict[str, Any]:
        return {
            "kind": "card",
            "head": self.head.data,
            "parts": [part.data for part in self.parts],
        }

    def element(self) -> Element:
        columns = Element("div", *(part.element() for part in self.parts), class_="columns")
        note = [Element("div", self.note, class_="muted")] if self.note else []
        return Element("div", self.head.element(), columns, *note, class_="card")


@dataclass(frozen=True, kw_only=True)
class Section:
    """Parts under a heading."""

    title: str
    parts: Sequence[PagePart]
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        return {"title": self.title, "parts": [part.data for part in self.parts]}

    def element(self) -> Element:
        note = [Element("p", self.note, class_="muted")] if self.note else []
        parts = Element("div", *(part.element() for part in self.parts), class_="stack")
        heading = [Element("h2", self.title)] if self.title else []
        return Element("section", *heading, *note, parts)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Sections under a title."""

    title: str
    sections: Sequence[Section]
    note: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """The exact values shown, ready for JSON."""
        return {"title": self.title, "sections": [section.data for section in self.sections]}

    def html(self) -> str:
        """The HTML document."""
        names = list_scripts(self.sections)
        styles = [load_page_style(), *filter(None, map(load_style, names))]
        scripts = [load_asset("page.js"), *(load_asset(f"scripts/{name}.js") for name in names)]
        has_images = any(getattr(part, "has_images", False) for part in list_parts(self.sections))
        policy = (
            f"default-src 'none'; {'img-src data:; ' if has_images else ''}"
            f"style-src {' '.join(map(csp_hash, styles))}; "
            f"script-src {' '.join(map(csp_hash, scripts))}; base-uri 'none'; form-action 'none'"
        )
        head = Element(
            "head",
            Element("meta", charset="utf-8"),
            Element("meta", http_equiv="Content-Security-Policy", content=policy),
            Element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            Element("title", self.title),
            *(Element("style", style) for style in styles),
        )
        note = [Element("p", self.note, class_="muted")] if self.note else []
        sections = (section.element() for section in self.sections)
        main = Element("main", Element("h1", self.title), *note, *sections)
        body = Element("body", main, *(Element("script", script) for script in scripts))
        return f"<!doctype html>\n{Element('html', head, body, lang='en')}\n"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a self-contained file."""
        return write_text(path, self.html())

    def _repr_html_(self) -> str:
        return str(self.frame())

    def frame(self) -> Element:
        """HTML for notebooks: an iframe, which isolates styles and scripts."""
        return Element(
            "iframe",
            srcdoc=self.html(),
            sandbox="allow-scripts",
            width="100%",
            height=640,
            frameborder="0",
        )


def load_page_style() -> str:
    """The style sheet of every page."""
    return load_asset("page.css") + load_asset("chart.css")


def list_parts(parts: Iterable[PagePart]) -> Iterator[PagePart]:
    """The parts and all parts inside them, in order."""
    for part in parts:
        yield part
        head = getattr(part, "head", None)
        yield from list_parts([*([] if head is None else [head]), *getattr(part, "parts", ())])


def list_scripts(parts: Iterable[PagePart]) -> list[str]:
    """The names of the scripts that parts need, each once, in order."""
    names = (name for part in list_parts(parts) for name in getattr(part, "script", "").split())
    return list(dict.fromkeys(names))


def to_json_value(value: Cell) -> Cell:
    """The value, or None for NaN and infinity, which JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _render_fact(fact: Fact) -> Element:
    detail = [Element("dd", fact.detail, class_="muted")] if fact.detail else []
    value = Element("dd", fact.text, class_="value")
    return Element("div", Element("dt", fact.label), value, *detail, class_="fact")


def _render_cell(text: str, css: str, name: str | None) -> Element:
    return Element("td", text, class_=css, dir="auto", data_name=name)


def _longest_line(cell: Cell) -> int:
    return max(map(len, _format_cell(cell).split("\n")))


def _format_column(column: Sequence[Cell]) -> list[str]:
    """The texts of a column; numbers have the same number of decimals."""
    texts = [_format_cell(cell) for cell in column]
    if not all(map(_is_number, column)) or any("e" in text for text in texts):
        return texts
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    return [
        f"{cell:.{decimals}f}" if isinstance(cell, float) and math.isfinite(cell) else text
        for cell, text in zip(column, texts, strict=True)
    ]


def _format_cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str | bool):
        return cell if isinstance(cell, str) else json.dumps(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.6g}"


def _column_class(column: Sequence[Cell]) -> str:
    if all(_is_number(cell) or _NUMERIC.fullmatch(_format_cell(cell)) for cell in column):
        return "number"
    return "short" if all(len(_format_cell(cell)) <= _SHORT for cell in column) else "long"


def _is_number(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _highlight(text: str, marked: Iterable[str]) -> list[Child]:
    parts: list[Child] = [text]
    for word in marked:
        parts = [
            new
            for part in parts
            for new in (_mark_word(part, word) if isinstance(part, str) else [part])
        ]
    return parts


def _mark_word(text: str, word: str) -> list[Child]:
    first, *rest = text.split(word)
    found: list[Child] = [first]
    for part in rest:
        found += [Element("mark", word), part]
    return found


def csp_hash(text: str) -> str:
    """The source of a content security policy that allows an inline style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
