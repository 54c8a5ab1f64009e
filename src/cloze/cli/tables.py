"""Tables on a terminal of any width; tab-separated lines in a pipe or file."""

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from cloze.terminal import escape_control_characters

FOLDED = 14  # characters of a cell: longer ones may be folded
_NUMBERS = re.compile(r"[\d\s.,:;+−±%/×()\[\]e-]*")  # numbers, intervals, durations
_NUMBER = re.compile(r"([<+−-]?[\d,]*\.?\d+(e[+-]?\d+)?(\s?%)?)?")
CELL_FRAME = 3  # characters around a cell: a line, and a space on both sides


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table on a terminal, or tab-separated lines in a pipe or file.

    Numbers and short cells are not folded. If the terminal is too narrow for them, each row becomes
    a table of its own.
    """
    if not sys.stdout.isatty():
        for row in chain([columns], rows):
            texts = ("" if cell is None else str(cell) for cell in row)
            print(*map(escape_control_characters, texts), sep="\t")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    listed = [[escape_control_characters(format_cell(cell)) for cell in row] for row in rows]
    names, console = [escape_control_characters(column) for column in columns], Console()
    widths = measure_columns(names, listed)
    if len(names) > 2 and measure_table(widths) > console.width:  # noqa: PLR2004
        for row in listed:
            pairs = zip(names[1:], row[1:], strict=True)
            print_table((names[0], row[0]), [pair for pair in pairs if pair[1]], title)
        return
    table = Table(
        title=Text(escape_control_characters(title)) if title else None, title_justify="left"
    )
    for number, name in enumerate(names):
        cells = [row[number] for row in listed if row[number]]
        is_numeric = bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)
        table.add_column(
            Text(name),
            overflow="fold",
            justify="right" if is_numeric else "left",
            min_width=widths[number].smallest,
        )
    for row in listed:
        table.add_row(*map(Text, row))  # in a Text, brackets are not markup
    console.print(table)


def format_cell(cell: object) -> str:
    """Format a cell of a table; integers have thousands separators, None is empty."""
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


class Widths(NamedTuple):
    """The width of a column without folding any cell, and the smallest width it needs."""

    full: int
    smallest: int


def measure_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Widths]:
    """The widths of each column: neither its numbers nor the words of its name are split."""
    from rich.cells import cell_len

    found = []
    for number, name in enumerate(names):
        cells = [row[number] for row in rows]
        full = max(map(cell_len, cells), default=0)
        is_numeric = all(_NUMBERS.fullmatch(cell) for cell in cells)
        word = max(map(cell_len, name.split()), default=0)
        found.append(Widths(full, max(full if is_numeric else min(full, FOLDED), word)))
    return found


def measure_table(columns: Sequence[Widths]) -> int:
    """The smallest width of a table."""
    return sum(one.smallest + CELL_FRAME for one in columns) + 1
