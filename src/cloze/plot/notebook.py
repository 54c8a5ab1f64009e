"""HTML of results in notebooks: bars, marked spans, colored tokens and tables.

There is no style sheet: all styles are attributes. Backgrounds are translucent and text has the
color of the notebook, so that both can be read in light and dark themes.
"""

import base64
import math
from collections.abc import Container, Iterable, Sequence

from cloze.plot.format import format_number, format_percent
from cloze.plot.marked_text import MAX_CONTEXT, Mark, find_hue, split_text
from cloze.plot.page import Cell, Page
from cloze.plot.svg import Child, Element, Figure

MAX_BARS = 10
MAX_SURPRISAL = 15.0  # bits; tokens with more have the same color
_RARE = 0.01  # smaller fractions get one more decimal
_BLUE, _RED = 207, 8  # hues


def render_result(*parts: Element, note: str = "", truncated_chars: int = 0) -> str:
    """The parts one below the other, and notes in small type: how much was not read."""
    unread = f"{truncated_chars:,} characters were not read" if truncated_chars else ""
    notes = [render_note(text) for text in (note, unread) if text]
    style = "max-width: 60em; line-height: 1.6; overflow-wrap: anywhere"
    return str(Element("div", *parts, *notes, style=style))


def render_note(text: str) -> Element:
    """A line of small, faint text."""
    return Element("div", text, dir="auto", style="font-size: .85em; opacity: .7")


def render_heading(text: str) -> Element:
    """A line of bold text."""
    return Element("div", text, dir="auto", style="font-weight: 600")


def render_image(png: bytes, description: str = "") -> Element:
    """A PNG file, inside of the page."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return Element("img", src=source, alt=description, style="max-height: 8em; max-width: 100%")


def render_figure(figure: Figure) -> Element:
    """A figure, on its own background."""
    return Element("div", figure.standalone_svg(), style=f"max-width: {figure.width:.0f}px")


def render_text(
    text: str, marks: Iterable[Mark] = (), *, max_context: int = MAX_CONTEXT
) -> Element:
    """A text with highlighted parts, as in displaCy; `marks` are sorted and do not overlap.

    A long text without marks at its ends is shortened there.
    """
    children: list[Child] = [
        part if mark is None else _render_mark(part, mark)
        for part, mark in split_text(text, list(marks), max_context)
    ]
    return Element("div", *children, dir="auto", style="white-space: pre-wrap; line-height: 1.9")


def render_bars(
    rows: Iterable[tuple[str, float]],
    *,
    title: str = "",
    as_percent: bool = True,
    bold: Container[str] = (),
) -> Element:
    """Horizontal bars of values from 0 to 1; of many only the first."""
    listed = list(rows)
    children = [
        cell
        for label, value in listed[:MAX_BARS]
        for cell in _render_bar(label, value, as_percent, label in bold)
    ]
    if len(listed) > MAX_BARS:
        children.append(render_note(f"and {len(listed) - MAX_BARS:,} more"))
    style = (
        "display: grid; grid-template-columns: minmax(8em, 24em) max-content; gap: 2px .8em; "
        "margin: .3em 0"
    )
    bars = Element("div", *children, style=style)
    return Element("div", *([render_heading(title)] if title else []), bars)


def render_columns(parts: Sequence[Element]) -> Element:
    """Parts side by side, as many in a row as fit."""
    style = (
        "display: grid; gap: .2em 2em; "
        "grid-template-columns: repeat(auto-fit, minmax(min(100%, 16em), 1fr))"
    )
    return Element("div", *parts, style=style)


def render_tokens(tokens: Iterable[tuple[str, float]]) -> Element:
    """Tokens and their log-probabilities (natural logarithm): the redder, the less probable."""
    return Element("div", *map(_render_token, tokens), dir="auto", style="line-height: 2.1")


def render_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Element:
    """A table; numbers are right-aligned."""
    listed = [list(row) for row in rows]
    numeric = [
        bool(listed) and all(_is_number(row[n]) for row in listed) for n in range(len(columns))
    ]
    heads = (_render_cell("th", name, right) for name, right in zip(columns, numeric, strict=True))
    lines = (
        Element("tr", *(_render_cell("td", *pair) for pair in zip(row, numeric, strict=True)))
        for row in listed
    )
    table = Element(
        "table",
        Element("thead", Element("tr", *heads)),
        Element("tbody", *lines),
        style="border-collapse: collapse; margin: .3em 0; font-variant-numeric: tabular-nums; "
        "overflow-wrap: normal",
    )
    return Element("div", table, style="overflow-x: auto")


def render_report(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], page: Page, *, note: str = ""
) -> str:
    """A table, and a whole page that is hidden until its line is clicked."""
    summary = Element("summary", "Report", style="cursor: pointer; opacity: .7")
    details = Element("details", summary, page.frame())
    return render_result(render_table(columns, rows), render_note(note), details)


def _render_mark(text: str, mark: Mark) -> Element:
    hue = find_hue(mark)
    label_style = "font-size: .7em; font-weight: 700; margin-inline-start: .5em; opacity: .85"
    label = [Element("span", mark.label, style=label_style)] if mark.label else []
    style = (
        f"background: hsla({hue}, 85%, 50%, .3); color: inherit; padding: .15em .35em; "
        "border-radius: .35em; box-decoration-break: clone; -webkit-box-decoration-break: clone"
    )
    return Element("mark", text, *label, title=mark.tooltip or None, style=style)


def _render_bar(label: str, value: float, as_percent: bool, bold: bool) -> tuple[Element, Element]:
    finite = math.isfinite(value)
    width = str(round(100 * min(max(value, 0.0), 1.0), 2) if finite else 0) + "%"
    color = f"hsla({_BLUE}, 85%, 50%, .32)"
    style = (
        f"background: linear-gradient(to right, {color} {width}, transparent {width}); "
        f"padding: 0 .5em; border-radius: 3px; font-weight: {700 if bold else 400}"
    )
    decimals = 1 if not finite or value >= _RARE else 2
    shown = format_percent(value, decimals) if as_percent else f"{value:.4f}"
    number_style = "text-align: right; font-variant-numeric: tabular-nums; opacity: .8"
    return (
        Element("div", label, dir="auto", style=style),
        Element("div", shown, style=number_style),
    )


def _render_token(token: tuple[str, float]) -> Element:
    text, log_probability = token
    bits = -log_probability / math.log(2)
    alpha = 0.65 * min(max(bits, 0.0), MAX_SURPRISAL) / MAX_SURPRISAL if bits >= 0 else 0.0
    style = (
        f"background: hsla({_RED}, 90%, 55%, {alpha:.3f}); padding: .15em .25em; "
        "margin-inline-end: .2em; border-radius: 3px; white-space: pre-wrap"
    )
    tooltip = f"log-probability {format_number(log_probability)}, {format_number(bits)} bits"
    return Element("span", text, title=tooltip, style=style)


def _render_cell(tag: str, cell: Cell, right: bool) -> Element:
    weight = "600; white-space: nowrap" if tag == "th" else "400; white-space: pre-wrap"
    style = (
        f"text-align: {'right' if right else 'left'}; font-weight: {weight}; padding: .2em .8em; "
        "border-bottom: 1px solid rgba(128, 128, 128, .35); vertical-align: top; "
        "background: transparent; color: inherit"
    )
    return Element(tag, _format_cell(cell), dir="auto", style=style)


def _format_cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str | bool):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else format_number(cell)


def _is_number(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))
