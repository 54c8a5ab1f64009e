"""Pairs of texts for sentence embeddings, from tables: pairs, triplets, scored pairs, single texts.

| columns | example |
|---|---|
| a text | a text alone |
| two texts | an anchor and its positive |
| three or more texts | an anchor, its positive, and negatives |
| two texts and a number | a pair and how similar its texts are |

The columns are found by their names, or without a header by their contents. Cells of positives and
negatives may be lists of texts, as in JSON lines: one example for each positive.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from cloze.data.labelled.columns import PAIRS, TEXTS, find_column, format_names, is_number
from cloze.data.labelled.examples import UNKNOWN_ORIGIN, Origin
from cloze.data.labelled.records import (
    TABLE_FORMATS,
    DataInput,
    Record,
    format_input_name,
    read_inputs,
    read_records,
)
from cloze.data.readers import check_complete, column_count_error, parse_text
from cloze.data.sources import OnError, Source
from cloze.errors import InputError

ROWS_INSPECTED = 1000  # rows from which the columns are detected
_TWO = 2
_MIN_ROWS = 20  # from this many rows on, a third column of few different values is a label
# Names of the two texts, in this order of preference.
TEXT_PAIRS = (
    *(("anchor", "positive"), ("query", "positive"), ("query", "pos"), ("anchor", "pos")),
    *(("question", "answer"), ("query", "answer"), ("query", "document"), ("query", "text")),
    *PAIRS,
    *(("source", "target"), ("text", "positive"), ("title", "text"), ("title", "body")),
    *(("title", "abstract"), ("title", "paragraph"), ("text", "summary"), ("text", "pair")),
)
SCORES = (
    *("score", "similarity", "similarity_score", "relatedness_score", "rating", "label"),
    *("is_duplicate", "quality"),
)
_NEGATIVE = re.compile(r"(hard_)?neg(ative)?s?[ _-]?\d*")
_KNOWN = {name for pair in TEXT_PAIRS for name in pair} | {*TEXTS, *SCORES}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairExample:
    """A text, a text that should be similar to it, and maybe others that should not, or a score."""

    text: str
    positive: str | None = None  # None: a text alone
    negatives: tuple[str, ...] = ()
    score: float | None = None  # how similar the two are; higher means more similar
    group: int = 0  # batches of one group each can be trained on
    document: int = 0  # that the texts are from
    origin: Origin = UNKNOWN_ORIGIN


@dataclass(frozen=True, kw_only=True)
class PairColumns:
    """The columns of a table: names, or 1-based numbers; None or (): auto-detected."""

    text: str | None = None
    pair: str | None = None
    negatives: tuple[str, ...] = ()
    score: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are given."""
        texts = (name for name in (self.text, self.pair, self.score) if name is not None)
        return (*texts, *self.negatives)


def read_pair_examples(
    sources: Source | list[Source],
    columns: PairColumns | None = None,
    *,
    on_error: OnError = "raise",
) -> Iterator[PairExample]:
    """Read the examples of all sources lazily, in order.

    Args:
        sources: a path, folder, glob, or `-` for standard input; a data frame (pandas, polars), a
            `datasets` object, a list or another iterable of mappings; or a list of these.
        columns: the columns (default: auto-detected).
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    requested = columns or PairColumns()

    def read(part: DataInput) -> Iterator[PairExample | InputError]:
        rows = check_complete(read_records(part, TABLE_FORMATS), format_input_name(part))
        head = list(islice(rows, ROWS_INSPECTED))
        records = [row for row in head if isinstance(row, Record)]
        if not records:
            yield from (row for row in head if isinstance(row, InputError))
            return
        table = _Table(records, requested)
        for row in chain(head, rows):
            if isinstance(row, InputError):
                yield row
            elif row is not table.header:
                try:
                    yield from table.parse(row)
                except InputError as error:
                    yield error

    return read_inputs(sources, TABLE_FORMATS, read, on_error, "embed")


class _Table:
    """The columns of a table, and how its rows become examples."""

    def __init__(self, records: Sequence[Record], requested: PairColumns) -> None:
        first = records[0]
        self.header: Record | None = None
        self._names: tuple[str, ...] = ()
        if not isinstance(first.value, tuple):
            mappings = [row.value for row in records if isinstance(row.value, Mapping)]
            names = list(dict.fromkeys(str(name) for mapping in mappings for name in mapping))
            self._columns = (
                find_by_name(names, requested, first.where) if names else PairColumns(text="text")
            )
            return
        if _is_header(first.value, requested):
            self.header, self._names = first, first.value
            self._columns = find_by_name(first.value, requested, first.where)
            return
        self._names = tuple(str(number) for number, _ in enumerate(first.value, 1))
        rows = [row.value for row in records if len(row.value) == len(first.value)]
        self._columns = find_by_content(rows, requested, first.where)

    def parse(self, row: Record) -> Iterator[PairExample]:
        """The examples of a row: one for each positive."""
        values, columns = self._to_mapping(row), self._columns
        assert columns.text is not None
        (text,) = _read_texts(values, columns.text, row.where)[:1] or [""]
        example = PairExample(text=text, origin=row.make_origin())
        if columns.pair is None:
            yield example
            return
        negatives = tuple(
            one
            for name in columns.negatives
            if values.get(name) is not None
            for one in _read_texts(values, name, row.where)
        )
        score = None if columns.score is None else _read_score(values, columns.score, row.where)
        positives = _read_texts(values, columns.pair, row.where)
        if not positives:
            raise InputError(
                f"{row.where}: there is no positive in the column {columns.pair!r}",
                fix="add one, or leave the row out",
            )
        for positive in positives:
            yield replace(example, positive=positive, negatives=negatives, score=score)

    def _to_mapping(self, row: Record) -> Mapping[str, Any]:
        if isinstance(row.value, Mapping):
            return row.value
        if isinstance(row.value, str):
            return {"text": row.value}
        if not isinstance(row.value, tuple):
            raise InputError(
                f"{row.where}: {repr(row.value)[:40]} is not a row",
                fix='write objects with columns: {"anchor": …, "positive": …}',
            )
        if len(row.value) != len(self._names):
            first = "the header" if self.header else "the first row"
            raise column_count_error(row.value, self._names, first, row.where)
        return dict(zip(self._names, row.value, strict=True))


def find_by_name(names: Sequence[str], requested: PairColumns, where: str) -> PairColumns:
    """The requested columns, or those found by their names."""
    plain = {str(name).strip().lower(): name for name in reversed(names)}
    text, pair, score = (
        find_column(names, column, where)
        for column in (requested.text, requested.pair, requested.score)
    )
    negatives = tuple(
        str(find_column(names, column, where)) for column in requested.negatives
    ) or tuple(name for name in names if _NEGATIVE.fullmatch(str(name).strip().lower()))
    if text is None and pair is None:
        both = next((two for two in TEXT_PAIRS if {*two} <= plain.keys()), None)
        if both is not None:
            text, pair = (plain[name] for name in both)
    if text is None:
        likely = (*(first for first, _ in TEXT_PAIRS), *TEXTS)
        free = [plain[name] for name in likely if name in plain and plain[name] != pair]
        text = next(iter(free), names[0] if len(names) == 1 else None)
    if text is None or (pair is None and (negatives or requested.score)):
        raise _unknown_columns_error(names, where)
    if score is None and pair is not None and not negatives:
        score = next((plain[name] for name in SCORES if name in plain), None)
    return PairColumns(text=text, pair=pair, negatives=negatives, score=score)


def find_by_content(
    rows: Sequence[Sequence[str]], requested: PairColumns, where: str
) -> PairColumns:
    """The requested columns, or those of a table without a header: texts, or texts and a number."""
    names = [str(number) for number, _ in enumerate(rows[0], 1)]
    text, pair, score = (
        find_column(names, column, where)
        for column in (requested.text, requested.pair, requested.score)
    )
    negatives = tuple(str(find_column(names, column, where)) for column in requested.negatives)
    if text is not None:
        return PairColumns(text=text, pair=pair, negatives=negatives, score=score)
    free = [name for name in names if name not in (pair, score, *negatives)]
    numeric = [name for name in free if all(is_number(row[int(name) - 1]) for row in rows)]
    if score is None and len(names) > _TWO and numeric == [names[-1]]:
        score = numeric[0]
    free = [name for name in free if name != score]
    if pair is None:
        text, *rest = free
        pair = rest[0] if rest else None
        negatives = negatives or tuple(rest[1:])
    else:
        text = free[0]
    for name in negatives if score is None else ():
        _check_negatives([row[int(name) - 1] for row in rows], name, where)
    return PairColumns(text=text, pair=pair, negatives=negatives, score=score)


def _check_negatives(values: Sequence[str], name: str, where: str) -> None:
    """Raise if a column has few different values: those are labels, not texts."""
    if len(values) >= _MIN_ROWS and len({*values}) * 10 <= len(values):
        raise InputError(
            f"{where}: column {name} seems to contain labels, such as {values[0][:40]!r}, and not "
            "negatives",
            fix="name the columns by 1-based number: --text-column 1 --pair-column 2 (text_column= "
            "and pair_column= in Python) reads pairs; keep only the rows whose texts are similar",
        )


def _is_header(fields: Sequence[str], requested: PairColumns) -> bool:
    if any(not name.isdecimal() for name in requested.names):
        return True
    plain = [field.strip().lower() for field in fields]
    is_known = any(name in _KNOWN or _NEGATIVE.fullmatch(name) for name in plain)
    return is_known and not any(map(is_number, fields))


def _unknown_columns_error(names: Sequence[str], where: str) -> InputError:
    return InputError(
        f"{where}: the columns of the two texts are unknown, the columns are {format_names(names)}",
        fix="name them with --text-column and --pair-column (text_column= and pair_column= in "
        "Python), or call them anchor, positive and negative",
    )


def _read_texts(values: Mapping[str, Any], name: str, where: str) -> list[str]:
    """The texts of a cell: one, or those of a list."""
    if name not in values:
        raise InputError(f"{where}: the column {name!r} is missing", fix="fix the row")
    value = values[name]
    cells = value if isinstance(value, list) else [value]
    return [parse_text(one, f"{where}: column {name!r}") for one in cells]


def _read_score(values: Mapping[str, Any], name: str, where: str) -> float:
    value = values.get(name)
    number = float(value) if is_number(value) else float("nan")  # type: ignore[arg-type]
    if not abs(number) < float("inf"):
        raise InputError(
            f"{where}: the score {repr(value)[:40]} in the column {name!r} is not a number",
            fix="use numbers; a higher number means more similar. If the column is not a score, "
            "name the columns of the texts: --text-column, --pair-column",
        )
    return number
