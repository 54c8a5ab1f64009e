"""Find the columns of a table that contain the text, its pair and the label."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from typing import NamedTuple

from cloze.errors import InputError

# Pairs of texts, in the order of published code for BERT.
PAIRS = (
    ("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"),
    ("question", "sentence"), ("question", "passage"), ("query", "passage"), ("text_a", "text_b"),
    ("text1", "text2"), ("sentence_a", "sentence_b"), ("#1 string", "#2 string"),
)  # fmt: skip
TEXTS = (
    "text", "sentence", "content", "document", "body", "article", "passage", "paragraph", "review",
    "comment", "tweet", "utterance", "message", "question", "query", "premise",
)  # fmt: skip
# The first group of which a table has a column; if it has two of a group, the user must choose.
LABELS = (
    ("label", "labels", "gold_label"),
    (
        *("class", "category", "target", "quality", "is_duplicate", "sentiment", "intent", "topic"),
        *("classes", "categories", "targets", "topics", "genres"),  # several labels
    ),
    ("relatedness_score", "entailment_judgment", "entailment_label"),  # SICK has both
    ("score", "similarity", "stars", "rating"),
)
_KNOWN = {
    *TEXTS,
    *(name for pair in PAIRS for name in pair),
    *(n for group in LABELS for n in group),
}
_MARK = re.compile(r"[*?#%]*")  # acceptability marks, in CoLA's third column
_MIN_ROWS = 100  # from this many rows on, a column of mostly different values is not a label


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of a table: names, or 1-based numbers if it has no header."""

    text: str
    pair: str | None = None
    label: str | None = None
    indicators: tuple[str, ...] = ()  # columns with 0 or 1, one per label


class RequestedColumns(NamedTuple):
    """The columns requested by the user; None: auto-detect."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    labelled: bool = True  # False: ignore labels
    indicators: tuple[str, ...] = ()  # several label columns
    is_label_required: bool = False  # True: a table without a label column is an error

    @property
    def columns(self) -> tuple[str | None, str | None, str | None]:
        return self.text, self.pair, self.label

    @property
    def all_columns(self) -> tuple[str, ...]:
        return (*(name for name in self.columns if name is not None), *self.indicators)

    def find_indicators(self, names: Sequence[str], where: str) -> tuple[str, ...]:
        """The columns with 0 or 1, one per label."""
        found = (find_column(names, column, where) for column in self.indicators)
        return tuple(name for name in found if name is not None)

    def check(self, found: Columns, names: Sequence[str], where: str) -> Columns:
        """The columns that were found; raise if two are the same, or a needed label is missing."""
        roles = {"text": found.text, "pair": found.pair, "label": found.label}
        for role, other in combinations([role for role in roles if roles[role]], 2):
            if roles[role] == roles[other]:
                raise InputError(
                    f"{where}: the {role} column and the {other} column are both {roles[role]!r}",
                    fix=f"name two columns with --{role}-column and --{other}-column "
                    f"({role}_column= and {other}_column= in Python); "
                    f"the columns are {format_names(names)}",
                )
        if self.is_label_required and found.label is None and not found.indicators:
            raise InputError(
                f"{where}: no label column found; the columns are {format_names(names)}",
                fix="name it with --label-column (label_column= in Python)",
            )
        return found


_COLA = Columns(text="4", label="2")


def is_header(fields: Sequence[str], requested: RequestedColumns) -> bool:
    """Whether the first row is a header: a name is requested, or one is known and none is a number.

    A requested number that is larger than the number of columns is also a name, such as a year.
    """
    if any(not name.isdecimal() for name in requested.all_columns):
        return True
    if not any(name in _KNOWN for name in _normalize(fields)):
        return False
    numeric_names = [name for name in requested.all_columns if int(name) > len(fields)]
    return not any(is_number(field) and field not in numeric_names for field in fields)


def is_number(value: object) -> bool:
    """Whether a label is a number, including NaN and infinity, which are rejected later."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return "_" not in str(value)


def find_columns_by_name(names: Sequence[str], requested: RequestedColumns, where: str) -> Columns:
    """The requested columns, or columns found by their names."""
    plain = _normalize(names)
    text, pair, label = (find_column(names, column, where) for column in requested.columns)
    indicators = requested.find_indicators(names, where)
    if label is None and requested.labelled and not indicators:
        label = _find_label([name for name in names if name not in (text, pair)], where)
    if text is None and pair is None:
        both = next((two for two in PAIRS if {*two} <= {*plain} and label not in two), None)
        if both:
            text, pair = (names[plain.index(name)] for name in both)
    if text is None:
        free = [name for name in names if name not in (pair, label, *indicators)]
        likely = (*TEXTS, *(first for first, _ in PAIRS))
        known = (names[plain.index(name)] for name in likely if name in plain)
        text = next((name for name in known if name in free), free[0] if len(free) == 1 else None)
    if text is None:
        raise InputError(
            f"{where}: the text column is unknown, the columns are {format_names(names)}",
            fix="name it with --text-column (text_column= in Python), and --pair-column if there "
            "are two texts, or use 1-based numbers",
        )
    for name in (text, pair, label, *indicators):
        if name is not None and names.count(name) > 1:
            raise InputError(f"{where}: two columns are named {name!r}", fix="rename one")
    found = Columns(text=text, pair=pair, label=label, indicators=indicators)
    return requested.check(found, names, where)


def find_columns_by_content(
    rows: Sequence[Sequence[str]], requested: RequestedColumns, where: str
) -> Columns:
    """The requested columns, or those of a table without a header, found from its first rows.

    A single column is the text. Of two columns, or three with a pair, the label is the last one,
    unless the first has fewer distinct values and the last is not a number. Four columns are those
    of CoLA (source, label, mark, sentence) if the third is an acceptability mark or empty.
    """
    names = [str(number) for number, _ in enumerate(rows[0], 1)]
    text, pair, label = (find_column(names, column, where) for column in requested.columns)
    indicators = requested.find_indicators(names, where)
    if label is None and not indicators:
        label = _guess_label(rows, {text, pair})
        if text is None and label is not None and requested.labelled:
            _check_labels(rows, int(label) - 1, where)
    free = [name for name in names if name not in (text, pair, label, *indicators)]
    if text is None and label == _COLA.label and _is_cola(rows):
        text = _COLA.text
    elif text is None and free and len(names) - len(indicators) <= 3:  # noqa: PLR2004 - a pair and its label
        text, *second = free
        pair = second[0] if second and pair is None else pair
    if text is None:
        raise InputError(
            f"{where}: the text column is unknown: {len(names)} columns without a header",
            fix="give the columns by 1-based number, such as --text-column 1 --label-column 2 (in "
            "Python text_column=1, label_column=2), or add a header line",
        )
    found = Columns(
        text=text,
        pair=pair,
        label=label if requested.labelled else None,
        indicators=indicators,
    )
    return requested.check(found, names, where)


def _guess_label(rows: Sequence[Sequence[str]], taken: Container[str | None]) -> str | None:
    width = len(rows[0])
    if _is_cola(rows):
        likely = [_COLA.label]
    elif width in (2, 3):
        likely = ["1", str(width)] if _is_label_first(rows) else [str(width), "1"]
    else:
        likely = []
    return next((name for name in likely if name not in taken), None)


def _is_cola(rows: Sequence[Sequence[str]]) -> bool:
    return len(rows[0]) == 4 and all(_MARK.fullmatch(row[2].strip()) for row in rows)  # noqa: PLR2004


def _is_label_first(rows: Sequence[Sequence[str]]) -> bool:
    first, last = {row[0] for row in rows}, {row[-1] for row in rows}
    return len(first) < len(last) and not all(map(is_number, last))


def _check_labels(rows: Sequence[Sequence[str]], at: int, where: str) -> None:
    """Raise if the label column is doubtful: a translation, or a header with unknown names."""
    first, *others = labels = [row[at] for row in rows]
    if (
        len(rows) >= _MIN_ROWS
        and len({*labels}) > len(rows) / 2
        and not all(map(is_number, labels))
    ):
        raise InputError(
            f"{where}: column {at + 1} is probably not the label: most rows have different values",
            fix="give the columns by 1-based number, such as --text-column 1 --label-column 2 (in "
            "Python text_column=1, label_column=2), or add a header line",
        )
    names = all(re.fullmatch(r"[A-Za-z_#][\w #.-]{0,30}", field) for field in rows[0])
    if names and others and first not in others:
        raise InputError(
            f"{where}: {format_names(rows[0])} may be a header, but none of the names is known",
            fix="if it is one, name the columns: --text-column, --label-column (text_column=, "
            "label_column= in Python); if not, pass 1-based numbers",
        )


def _find_label(names: Sequence[str], where: str) -> str | None:
    plain = _normalize(names)
    for group in LABELS:
        found = [names[plain.index(name)] for name in group if name in plain]
        if len(found) > 1:
            raise InputError(
                f"{where}: the label column is ambiguous: {format_names(found)}",
                fix="name it: --label-column NAME (label_column= in Python)",
            )
        if found:
            return found[0]
    return None


def find_column(names: Sequence[str], column: str | None, where: str) -> str | None:
    """The requested column: by name, or by 1-based number if no column has that name."""
    if column is None:
        return None
    if column in names:
        return column
    plain = _normalize(names)
    if plain.count(column.strip().lower()) == 1:
        return names[plain.index(column.strip().lower())]
    if column.isdecimal() and 1 <= int(column) <= len(names):
        return names[int(column) - 1]
    if column.isdecimal():
        raise InputError(
            f"{where}: there is no column {column}, only {len(names)} columns",
            fix="count columns from 1",
        )
    raise missing_column_error(names, column, where)


def missing_column_error(names: Sequence[str], column: str, where: str) -> InputError:
    """The error for a column name that does not exist."""
    near = get_close_matches(column, names, n=1)
    return InputError(
        f"{where}: no column is named {column!r}, the columns are {format_names(names)}",
        fix=f"did you mean {near[0]!r}?" if near else f"choose from {format_names(names)}",
    )


def _normalize(names: Sequence[str]) -> list[str]:
    return [str(name).strip().lower() for name in names]


def format_names(names: Sequence[str]) -> str:
    """The names for a message."""
    return ", ".join(repr(name)[:40] for name in names[:12]) or "none"
