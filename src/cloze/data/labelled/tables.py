"""Labelled texts and pairs of texts from tables: csv, tsv, JSON lines, Parquet, data sets.

The first row of a csv or tsv is a header if a column name is requested, or if one of its fields is
a known name of a text or label column (`labelled/columns.py`) and none is a number. This detects
the headers of GLUE, with or without a byte order mark; the first rows of CoLA and of
`text TAB label` are examples.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Literal, NoReturn

from cloze.data.labelled.columns import (
    Columns,
    RequestedColumns,
    find_columns_by_content,
    find_columns_by_name,
    is_header,
)
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.labels import (
    Label,
    LabelFormat,
    detect_label_format,
    is_empty,
    is_minus_one,
    missing_label_error,
    parse_indicators,
)
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


def read_text_examples(  # noqa: PLR0913 - columns and labels
    sources: Source | list[Source],
    *,
    text_column: str | int | None = None,
    pair_column: str | int | None = None,
    label_column: str | int | Sequence[str | int] | Literal[False] | None = None,
    label_delimiter: str | None = None,
    is_regression: bool | None = None,
    is_multi_label: bool | None = None,
    labels: Collection[str] | None = None,
    is_label_required: bool = False,
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
        label_column: label column (default: auto-detected, and it may be missing); or several,
            which contain 0 or 1, one per label. False: do not read labels.
        label_delimiter: what separates several labels in a string (default: auto-detected).
        is_regression: whether labels are numbers instead of class names. By default they are if all
            in the first thousand rows of the first file are numbers and some have a fractional
            part.
        is_multi_label: whether an example may have several labels, which are then a tuple. By
            default it may if some labels are lists or strings with a delimiter.
        labels: the labels of the model, if they are known: a delimiter splits strings into them.
        is_label_required: whether a table without a label column is an error.
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    requested = _request_columns(text_column, pair_column, label_column)
    requested = requested._replace(is_label_required=is_label_required)
    format_: LabelFormat | None = None

    def read(part: DataInput) -> Iterator[TextExample | InputError]:
        nonlocal format_
        table = _Table(part, requested)
        if format_ is None and table.columns:
            # the first file decides: a short one may contain whole numbers only
            format_ = detect_label_format(
                table.known_labels,
                class_names=table.class_names,
                is_regression=is_regression,
                delimiter=label_delimiter,
                is_multi_label=is_multi_label,
                labels=labels,
            )
        yield from table.examples(format_ or LabelFormat())

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

    def examples(self, format_: LabelFormat) -> Iterator[TextExample | InputError]:
        for row in chain(self._head, self._rest):
            if isinstance(row, InputError):
                yield row
            elif row is not self._header:
                try:
                    yield self._parse_example(row, format_)
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
        self.class_names = find_class_names(self._part, columns.label or "")
        stored = columns.indicators or ((columns.label,) if columns.label else ())
        values = [value for name in stored for value in self._read_labels(rows, name)]
        self.known_labels = [value for value in values if not is_empty(value)]
        # a test file of GLUE, or a table without labels
        self._unlabelled = all(map(is_minus_one, self.known_labels))
        return columns

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

    def _parse_example(self, row: Record, format_: LabelFormat) -> TextExample:
        values, columns = self._to_mapping(row), self.columns
        assert columns is not None  # there is at least one row
        texts = [name for name in (columns.text, columns.pair) if name is not None]
        for name in texts:
            if name not in values:
                raise InputError(f"{row.where}: the column {name!r} is missing", fix="fix the row")
        text, *pair = (parse_text(values[name], f"{row.where}: column {name!r}") for name in texts)
        return TextExample(
            text=text,
            pair=pair[0] if pair else None,
            label=self._parse_label(values, format_, row.where),
            origin=row.make_origin(),
        )

    def _parse_label(self, values: Mapping[str, Any], format_: LabelFormat, where: str) -> Label:
        assert self.columns is not None
        if self.columns.indicators:
            found = parse_indicators(values, self.columns.indicators, where)
            if found is None and not self._unlabelled:
                raise missing_label_error(where)
            return found
        name = self.columns.label
        label = None if name is None else values.get(name)
        if self._unlabelled and (is_empty(label) or is_minus_one(label)):
            return None
        return format_.parse(label, f"{where}: column {name!r}", self.class_names)


def _request_columns(
    text: str | int | None,
    pair: str | int | None,
    label: str | int | Sequence[str | int] | Literal[False] | None,
) -> RequestedColumns:
    labels = [label] if isinstance(label, str | int) else list(label or ())
    names = [] if label is False else [str(column) for column in labels]
    return RequestedColumns(
        text=None if text is None else str(text),
        pair=None if pair is None else str(pair),
        label=names[0] if len(names) == 1 else None,
        labelled=label is not False,
        indicators=tuple(names) if len(names) > 1 else (),
    )
