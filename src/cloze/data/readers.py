"""Readers of text files: one for each format, all yielding rows of text or errors.

A reader yields an `InputError` for a row that it cannot read and continues; it raises
`UnreadableFileError` if the rest of the file cannot be read reliably.
"""

import csv
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

from cloze.data.delimiters import detect_dialect
from cloze.data.input_files import (
    MAX_LINE_BYTES,
    STDIN,
    TextLines,
    UnreadableFileError,
    detect_file_format,
    open_binary,
    peek_stdin,
    split_endings,
)
from cloze.data.labelled.columns import (
    TEXTS,
    RequestedColumns,
    find_column,
    format_names,
    is_header,
    missing_column_error,
)
from cloze.errors import InputError, MissingExtraError

_JSON_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*"|\[\s*[\[{"])')
PARQUET_BATCH_ROWS = 1024  # Parquet rows in memory at once
_TEXT_KEY = re.compile(rf'"(?:{"|".join(TEXTS)})"\s*:'.encode(), re.IGNORECASE)


class Row(NamedTuple):
    """A text, its file and its line."""

    text: str
    file: str
    line: int  # from 1; in Parquet files and data sets the row number
    is_document: bool = False  # rows of tables are complete documents, lines of text are not


RowOrError: TypeAlias = Row | InputError
NumberedValue: TypeAlias = tuple[int, Any]  # the line or row number, and the value
T = TypeVar("T")


def read_file(path: Path, column: str | None) -> Iterator[RowOrError]:
    """The rows of a file, in the format of its ending."""
    format_ = detect_file_format(path)
    if format_ == "parquet":
        return check_complete(_read_parquet_text(path, column), str(path))
    if format_ == "midi":
        return check_complete(_read_midi_events(path), str(path))
    return check_complete(_read_text_format(path, READERS[format_], column), str(path))


def check_complete(outcomes: Iterable[T | InputError], file: str) -> Iterator[T | InputError]:
    """The same outcomes, and an error if the file is empty or could not be read to its end."""
    empty = True
    try:
        for outcome in outcomes:
            empty = False
            yield outcome
    except InputError as error:
        yield error
    else:
        if empty:
            yield _empty_error(file)


def _empty_error(file: str) -> InputError:
    if file == STDIN:
        return InputError(f"{STDIN} is empty", fix="pipe in data, or name a file")
    if file.startswith("<"):  # an object
        return InputError(f"{file[1:-1]}: the table is empty", fix="pass a table with rows")
    return InputError(f"{file}: the file is empty", fix="leave it out")


def _read_text_format(path: Path, read: "Reader", column: str | None) -> Iterator[RowOrError]:
    with open_binary(path) as stream:
        yield from read(TextLines(stream, str(path)), column)


def read_plain_text(lines: TextLines, _column: str | None = None) -> Iterator[RowOrError]:
    """Plain text: a line is a row, including blank lines, which separate documents."""
    for line in iterate_lines(lines):
        if isinstance(line, InputError):
            yield line
        else:
            yield Row(line.removesuffix("\n").removesuffix("\r"), lines.file, lines.number)


def read_jsonl(lines: TextLines, column: str | None) -> Iterator[RowOrError]:
    """One JSON object or string per line."""
    return extract_rows(parse_json_lines(lines), column, lines.file)


def parse_json_lines(lines: TextLines) -> Iterator[NumberedValue | InputError]:
    """The value of every line that is not blank."""
    for line in iterate_lines(lines):
        if isinstance(line, InputError):
            yield line
        elif not line.isspace():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield InputError(
                    f"{lines.file}:{lines.number}: invalid JSON: {error}",
                    fix="write one JSON object per line (from an array: jq -c '.[]')",
                )
            else:
                yield lines.number, value


def read_csv(lines: TextLines, column: str | None) -> Iterator[RowOrError]:
    """Comma-separated fields; quoted fields may contain commas, quotes and newlines."""
    return _read_table(parse_table(lines, "csv"), column, lines.file)


def read_tsv(lines: TextLines, column: str | None) -> Iterator[RowOrError]:
    """Tab-separated fields."""
    return _read_table(parse_table(lines, "tsv"), column, lines.file)


def _read_table(
    records: Iterable[NumberedValue | InputError], column: str | None, file: str
) -> Iterator[RowOrError]:
    """The first row is a header, unless a column number is requested and it looks like data."""
    first: list[str] = []
    names: list[str] = []
    what = "the header"
    at = 0
    for found in records:
        if isinstance(found, InputError):
            yield found
            continue
        line, record = found
        if not first:
            first = names = record
            if column is not None and not is_header(first, RequestedColumns(text=column)):
                names, what = [str(number) for number, _ in enumerate(first, 1)], "the first row"
            at = names.index(choose_text_column(names, column, f"{file}:{line}"))
            if names is first:
                continue
        if len(record) != len(first):
            yield column_count_error(record, first, what, f"{file}:{line}")
        else:
            yield make_row(record[at], file, line, names[at])


def column_count_error(
    record: Sequence[str], first: Sequence[str], what: str, where: str
) -> InputError:
    """The error for a record with more or fewer fields than the first."""
    can_quote = split_endings(where.rpartition(":")[0])[0] == ".csv"  # in others few fields are
    return InputError(
        f"{where}: {len(record)} column{'s' * (len(record) != 1)}, but {what} has {len(first)}",
        fix="quote fields that contain the delimiter, or correct the row"
        if can_quote
        else "correct the row",
    )


def parse_table(lines: TextLines, format_: str) -> Iterator[NumberedValue | InputError]:
    """The fields of every record of a csv or tsv file, with the line where it begins.

    The delimiter is detected (`data/delimiters.py`). Quotes have a meaning only where they enclose
    fields: the registered format text/tab-separated-values has no quoting, and sentences in GLUE
    begin with a single quote, after which a quoting reader would join many lines.
    """
    # The limit applies to the whole process. It is raised and never restored, so that readers in
    # several threads do not affect each other.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    first, complete = lines.peek()
    dialect = detect_dialect(first, format_, complete=complete)
    return _number_records(dialect.split(lines), lines)


def _number_records(
    records: Iterator[list[str]], lines: TextLines
) -> Iterator[NumberedValue | InputError]:
    width = 0  # of the first record
    while True:
        start = lines.number + 1
        try:
            record = next(records)
        except StopIteration:
            return
        except UnreadableFileError:
            raise
        except (InputError, csv.Error) as error:
            wrong = _table_error(error, f"{lines.file}:{start}")
            if not width or lines.number > start:  # the start of the next record is unknown
                raise UnreadableFileError(wrong.problem, fix=wrong.fix) from error
            yield wrong
            continue
        # A blank line is not a row; but in a .tsv of one column it is an empty field, which has no
        # other notation. In a .csv an empty field is "", and a blank line has no fields.
        if not record or (record == [""] and width != 1):
            continue
        width = width or len(record)
        yield start, record


def _table_error(error: InputError | csv.Error, where: str) -> InputError:
    if isinstance(error, InputError):
        return error
    return InputError(
        f"{where}: invalid quoting: {error}",
        fix='close quotes, and double ("") quotes inside a field',
    )


def _read_parquet_text(path: Path, column: str | None) -> Iterator[RowOrError]:
    """The rows of a Parquet file; `line` is the row number."""
    choose = partial(_choose_text_columns, column=column, where=f"{path}:1")
    for found in read_parquet(path, choose):
        if isinstance(found, InputError):
            yield found
        else:
            ((name, value),) = found[1].items()
            yield make_row(value, str(path), found[0], name)


def _read_midi_events(path: Path) -> Iterator[RowOrError]:
    """The events of a MIDI file, which are one document."""
    from cloze.data.midi import read_midi

    yield Row(read_midi(path), str(path), 1, is_document=True)


def _choose_text_columns(names: Sequence[str], column: str | None, where: str) -> list[str]:
    return [choose_text_column(names, column, where)]


def read_parquet(
    path: Path, pick: Callable[[Sequence[str]], Sequence[str]] = list
) -> Iterator[NumberedValue | InputError]:
    """Every row as a mapping of the columns that `pick` selects from the column names."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtraError("reading .parquet", extra="parquet") from error
    number = 0
    try:
        with _open_seekable(path) as stream:
            # with a buffer, columns are streamed instead of read as a whole
            table = ParquetFile(stream, buffer_size=2**20, page_checksum_verification=True)
            names = pick(table.schema_arrow.names)
            for batch in table.iter_batches(PARQUET_BATCH_ROWS, columns=names, use_threads=False):
                for scalars in zip(*(batch.column(name) for name in names), strict=True):
                    number += 1
                    yield _to_python(names, scalars, number, path)
            # a damaged page header can make the library skip rows silently
            if number != table.metadata.num_rows:
                raise OSError(f"expected {table.metadata.num_rows} rows, found {number}")
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableFileError(
            f"{path}:{number + 1}: invalid Parquet: {reason}",
            fix="download or write the file again",
        ) from error


def _to_python(
    names: Sequence[str], scalars: Sequence[Any], number: int, file: Path
) -> NumberedValue | InputError:
    try:
        return number, {name: scalar.as_py() for name, scalar in zip(names, scalars, strict=True)}
    except UnicodeDecodeError as error:
        return InputError(f"{file}:{number}: not UTF-8: {error.reason}", fix="write the file again")


@contextmanager
def _open_seekable(path: Path) -> Iterator[IO[bytes]]:
    """Open a Parquet file, which is read from its end: a compressed one is decompressed to disk."""
    with open_binary(path) as stream:
        if not split_endings(path)[1]:
            yield stream
            return
        with tempfile.TemporaryFile() as decompressed:
            shutil.copyfileobj(stream, decompressed)
            decompressed.seek(0)
            yield decompressed


Reader: TypeAlias = Callable[[TextLines, str | None], Iterator[RowOrError]]
READERS: Mapping[str, Reader] = {
    "lines": read_plain_text,
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
}


def detect_stdin_format(column: str | None, *, may_be_text: bool = False) -> str:
    """The format of standard input, of which nothing is consumed.

    With a requested column it is JSON lines or a table; if it `may_be_text`, only if its first line
    names the column. Without one it is plain text, unless it begins with a JSON object that has a
    known text key.
    """
    start = peek_stdin()
    is_json = _JSON_START.match(start) is not None
    if column is None:
        return "jsonl" if is_json and _TEXT_KEY.search(start.partition(b"\n")[0]) else "lines"
    first = start.lstrip().partition(b"\n")[0]
    names = {name.strip(b'" \r') for name in re.split(rb"[\t,;|]", first)}
    if may_be_text and not is_json and column.encode() not in names:
        return "lines"
    return "jsonl" if is_json else "csv" if b"," in first and b"\t" not in first else "tsv"


def extract_rows(
    found: Iterable[NumberedValue | InputError], column: str | None, file: str
) -> Iterator[RowOrError]:
    """The text in every value: a string, a list of lines, or a mapping with a text column.

    The column is chosen once, at the first mapping, so that all texts come from the same column.
    """
    chosen: str | None = None
    for one in found:
        if isinstance(one, InputError):
            yield one
            continue
        line, value = one
        try:
            if isinstance(value, Mapping):
                if chosen is None:
                    chosen = choose_text_column(list(value), column, f"{file}:{line}")
                if chosen not in value:
                    raise missing_column_error(list(value), chosen, f"{file}:{line}")
                value = value[chosen]
        except InputError as error:
            yield error
        else:
            yield make_row(value, file, line, chosen)


def make_row(value: object, file: str, line: int, column: str | None = None) -> RowOrError:
    """Make a row from a string or a list of lines."""
    where = f"{file}:{line}" if column is None else f"{file}:{line}: column {column!r}"
    try:
        return Row(parse_text(value, where), file, line, is_document=True)
    except InputError as error:
        return error


def parse_text(value: object, where: str) -> str:
    """Convert a string or a list of lines to a text; raise if it is not valid text."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if value is None:
        wrong = "the text is missing (None)"
    elif not isinstance(value, str):
        wrong = f"{repr(value)[:40]} is not text"
    elif "\0" in value:
        wrong = "the text contains a NUL character"
    elif not _is_encodable(value):
        wrong = "the text contains a lone surrogate"
    else:
        return value
    raise InputError(f"{where}: {wrong}", fix="fix the row, or leave it out")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class UnknownTextColumnError(InputError):
    """A table has several columns, and none has the name of a text column."""


def choose_text_column(names: Sequence[str], column: str | None, where: str) -> str:
    """The text column: the requested one, the first with a known name, or the only one."""
    column = find_column(names, column, where)
    if column is None:
        known = {str(name).strip().lower(): name for name in reversed(names)}
        likely = (known[name] for name in TEXTS if name in known)
        column = next(likely, names[0] if len(names) == 1 else None)
    if column is None:
        raise UnknownTextColumnError(
            f"{where}: the text column is unknown, the columns are {format_names(names)}",
            fix="name it: --text-column NAME (text_column= in Python), or its 1-based number",
        )
    if names.count(column) > 1:
        raise InputError(f"{where}: two columns are named {column!r}", fix="rename one")
    return column


def iterate_lines(lines: Iterator[str]) -> Iterator[str | InputError]:
    """The lines, and the errors of lines that are not text."""
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except UnreadableFileError:
            raise
        except InputError as error:
            yield error
        else:
            yield line
