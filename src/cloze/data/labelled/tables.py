"""Labelled texts and pairs of texts from tables: csv, tsv, JSON lines, Parquet, data sets.

The first row of a csv or tsv is a header if a column name is requested, or if one of its fields is
a known name of a text or label column (`labelled/columns.py`) and none is a number. This detects
the headers of GLUE, with or without a byte order mark; the first rows of CoLA and of
`text TAB label` are examples.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Literal, NoReturn

from cloze.data.labelled.columns import (
    Columns,
    RequestedColumns,
    find_columns_by_content,
    find_columns_by_name,
    is_header,
    is_number,
)
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.records import (
    TABLE_FORMATS,
    DataInput,
    Record,
    find_class_names,
    format_input_name,
    read_inputs,
    read_records,
)
from cloze.data.readers import check_complete, column_count_error, parse_text
from cloze.data.sources import OnError, Source
from cloze.errors import InputError

ROWS_INSPECTED = 1000  # rows from which the columns are detected


def read_text_examples(
    sources: Source | list[Source],
    *,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    label_column: str | int | Literal[False] | None = None,
    is_regression: bool | None = None,
    on_error: OnError = "raise",
) -> Iterator[TextExample]:
    """Read the examples of all sources lazily, in order.

    The delimiter of a .csv, .tsv or .txt file is detected (`data/delimiters.py`). A table is
    unlabelled if it has no label column or no label in the first thousand rows (empty, missing, or
    GLUE's -1); in any other table a row without a label is an error. A text may be empty.

    Args:
        sources: a path, folder, glob, or `-` for standard input; a data frame (pandas, polars), a
            `datasets` object, a list or another iterable of mappings, a mapping of columns, or a
            tuple (texts, labels); or a list of these.
        text_column: text column: name or 1-based number (default: auto-detected).
        pair_column: column of the second text (default: auto-detected if `text_column` is not given
            either).
        label_column: label column (default: auto-detected, and it may be missing). False: do not
            read labels.
        is_regression: whether labels are numbers instead of class names. By default they are if all
            in the first thousand rows of the first file are numbers and some have a fractional
            part.
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    requested = _request_columns(text_column, pair_column, label_column)
    numbers = is_regression

    def read(part: DataInput) -> Iterator[TextExample | InputError]:
        nonlocal numbers
        table = _Table(part, requested)
        if numbers is None and table.columns:
            # the first file decides: a short one may contain whole numbers only
            numbers = table.columns.number
        yield from table.examples(bool(numbers))

    return read_inputs(sources, TABLE_FORMATS, read, on_error, "classify")


class _Table:
    """A file or data set: its first rows, the columns detected from them, and the rest."""

    def __init__(self, part: DataInput, requested: RequestedColumns) -> None:
        self._part, self._requested = part, requested
        self._rest = check_complete(read_records(part, TABLE_FORMATS), format_input_name(part))
        self._head = list(islice(self._rest, ROWS_INSPECTED))
        self._names: tuple[str, ...] = ()  # column names of a csv or tsv
        self._header: Record | None = None
        self.columns = self._find_columns(
            [row for row in self._head if isinstance(row, Record)], requested
        )

    def fail(self) -> NoReturn:
        """Raise the first error if no row could be read."""
        raise next(row for row in self._head if isinstance(row, InputError))

    def examples(self, number: bool) -> Iterator[TextExample | InputError]:
        for row in chain(self._head, self._rest):
            if isinstance(row, InputError):
                yield row
            elif row is not self._header:
                try:
                    yield self._parse_example(row, number)
                except InputError as error:
                    yield error

    def _find_columns(self, rows: Sequence[Record], requested: RequestedColumns) -> Columns | None:
        """Detect the columns and the type of the labels from the first rows."""
        if not rows:
            return None
        where = rows[0].where
        if isinstance(rows[0].value, tuple):
            columns = self._find_columns_of_fields(rows, requested)
        else:
            mappings = (row.value for row in rows if isinstance(row.value, Mapping))
            names = list(dict.fromkeys(str(name) for mapping in mappings for name in mapping))
            columns = (
                find_columns_by_name(names, requested, where) if names else Columns(text="text")
            )
        self._class_names = find_class_names(self._part, columns.label or "")
        labels = [] if columns.label is None else list(self._read_labels(rows, columns.label))
        known = [label for label in labels if not _is_empty(label)]
        # a test file of GLUE, or a table without labels
        self._unlabelled = all(map(_is_minus_one, known))
        is_numeric = not self._unlabelled and not self._class_names and all(map(is_number, known))
        return replace(columns, number=is_numeric and any(map(_is_fractional, known)))

    def _find_columns_of_fields(
        self, rows: Sequence[Record], requested: RequestedColumns
    ) -> Columns:
        first: tuple[str, ...] = rows[0].value
        # a single column of texts has a header, as in other functions
        is_text_column = len(first) == 1 and not requested.labelled and requested.text is None
        if is_text_column or is_header(first, requested):
            self._names, self._header = first, rows[0]
            return find_columns_by_name(first, requested, rows[0].where)
        self._names = tuple(str(number) for number, _ in enumerate(first, 1))
        same_width = [row.value for row in rows if len(row.value) == len(first)]
        return find_columns_by_content(same_width, requested, rows[0].where)

    def _read_labels(self, rows: Sequence[Record], column: str) -> Iterator[object]:
        for row in rows:
            if row is not self._header:
                try:
                    yield self._to_mapping(row).get(column)
                except InputError:  # reported when the row is reached
                    continue

    def _to_mapping(self, row: Record) -> Mapping[str, Any]:
        if isinstance(row.value, Mapping):
            return row.value
        if isinstance(row.value, str) and not self._requested.labelled:
            return {"text": row.value}
        if not isinstance(row.value, tuple):
            raise InputError(
                f"{row.where}: {repr(row.value)[:40]} is not a row",
                fix='write objects with columns: {"text": …, "label": …}',
            )
        if len(row.value) != len(self._names):
            first = "the header" if self._header else "the first row"
            raise column_count_error(row.value, self._names, first, row.where)
        return dict(zip(self._names, row.value, strict=True))

    def _parse_example(self, row: Record, number: bool) -> TextExample:
        values, columns = self._to_mapping(row), self.columns
        assert columns is not None  # there is at least one row
        texts = [name for name in (columns.text, columns.pair) if name is not None]
        for name in texts:
            if name not in values:
                raise InputError(f"{row.where}: the column {name!r} is missing", fix="fix the row")
        text, *pair = (parse_text(values[name], f"{row.where}: column {name!r}") for name in texts)
        label = None if columns.label is None else values.get(columns.label)
        return TextExample(
            text=text,
            pair=pair[0] if pair else None,
            label=self._parse_label(label, number, f"{row.where}: column {columns.label!r}"),
            origin=row.make_origin(),
        )

    def _parse_label(self, value: object, number: bool, where: str) -> str | float | None:
        if self._unlabelled and (_is_empty(value) or _is_minus_one(value)):
            return None
        if _is_empty(value):
            raise InputError(f"{where}: the label is missing", fix="add it, or leave the row out")
        if self._class_names and isinstance(value, int):
            return self._class_names[value] if 0 <= value < len(self._class_names) else None
        return _parse_number(value, where) if number else _parse_class_name(value, where)


def _request_columns(
    text: str | int | None, pair: str | int | None, label: str | int | Literal[False] | None
) -> RequestedColumns:
    label_column = None if label is False else label
    columns = [None if column is None else str(column) for column in (text, pair, label_column)]
    return RequestedColumns(
        text=columns[0], pair=columns[1], label=columns[2], labelled=label is not False
    )


def _is_empty(label: object) -> bool:
    return label is None or (isinstance(label, str) and not label.strip())


def _is_minus_one(label: object) -> bool:
    return str(label).strip() == "-1"


def _is_fractional(label: object) -> bool:
    value = float(label)  # type: ignore[arg-type]  # is_number
    return math.isfinite(value) and not value.is_integer()


def _parse_number(value: object, where: str) -> float:
    if not is_number(value):
        raise InputError(
            f"{where}: the label {repr(value)[:40]} is not a number",
            fix="fix the row, or read labels as class names",
        )
    number = float(value)  # type: ignore[arg-type]  # is_number
    if not math.isfinite(number):
        raise InputError(f"{where}: the label is {number}", fix="write a finite number")
    return number


def _parse_class_name(value: object, where: str) -> str:
    if isinstance(value, float):
        # a column of whole numbers with missing values contains floats
        number = _parse_number(value, where)
        return str(int(number)) if number.is_integer() else str(number)
    if isinstance(value, str | int):
        return str(value).strip()
    raise InputError(
        f"{where}: the label {repr(value)[:40]} is not a class name",
        fix="use one label per example, a string or a number",
    )
