"""One reader per kind of file: each turns it into rows of text, or into what is wrong with them.

A reader yields `InputError` for a row it cannot read and goes on; it raises `UnreadableError` where
going on would mean guessing.
"""

import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias, TypeVar

from cloze.data.input_files import (
    MAX_LINE_BYTES,
    TextLines,
    UnreadableFileError,
    file_format,
    open_binary,
    split_endings,
)
from cloze.data.labelled.columns import (
    RequestedColumns,
    find_column,
    format_names,
    is_header,
    missing_column_error,
)
from cloze.errors import InputError, MissingExtraError

# The text of a table whose column is not named is in the first of these it has, or its only one.
TEXT_COLUMNS = (
    "text",
    "sentence",
    "content",
    "document",
    "body",
    "article",
    "passage",
    "paragraph",
)
BATCH = 1024  # parquet rows in memory at once


class Row(NamedTuple):
    """A piece of text and where it came from."""

    text: str
    file: str
    line: int  # from 1; in parquet files and data sets the number of the row
    is_document: bool = (
        False  # a document by itself, as rows of tables are and lines of text are not
    )


RowOrError: TypeAlias = Row | InputError
NumberedValue: TypeAlias = tuple[int, Any]  # the line, or the number of the row, and what it holds
T = TypeVar("T")


def read_file(path: Path, column: str | None) -> Iterator[RowOrError]:
    """The rows of one file, read as its name says."""
    how = file_format(path)
    if how == "parquet":
        return check_complete(_parquet(path, column), str(path))
    return check_complete(_text_file(path, READERS[how], column), str(path))


def check_complete(outcomes: Iterable[T | InputError], file: str) -> Iterator[T | InputError]:
    """The same outcomes, and one more if the end was not reached or there was nothing before it."""
    empty = True
    try:
        for outcome in outcomes:
            empty = False
            yield outcome
    except InputError as error:
        yield error
    else:
        if empty:
            yield InputError(f"{file}: there is no text in it", fix="leave it out, or fill it")


def _text_file(path: Path, read: "Reader", column: str | None) -> Iterator[RowOrError]:
    with open_binary(path) as stream:
        yield from read(TextLines(stream, str(path)), column)


def read_plain_text(lines: TextLines, _column: str | None = None) -> Iterator[RowOrError]:
    """Plain text: a line is a row, blank ones included, for they part documents."""
    for line in iterate_lines(lines):
        if isinstance(line, InputError):
            yield line
        else:
            yield Row(line.removesuffix("\n").removesuffix("\r"), lines.file, lines.number)


def read_jsonl(lines: TextLines, column: str | None) -> Iterator[RowOrError]:
    """A JSON object or string on every line."""
    return extract_rows(parse_json_lines(lines), column, lines.file)


def parse_json_lines(lines: TextLines) -> Iterator[NumberedValue | InputError]:
    """The value on every line that is not blank."""
    for line in iterate_lines(lines):
        if isinstance(line, InputError):
            yield line
        elif not line.isspace():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield InputError(
                    f"{lines.file}:{lines.number}: broken JSON: {error}",
                    fix="write one JSON object per line (from an array: jq -c '.[]')",
                )
            else:
                yield lines.number, value


def read_csv(lines: TextLines, column: str | None) -> Iterator[RowOrError]:
    """Comma-separated fields; quoted ones may hold commas, quotes and newlines."""
    return _table(parse_csv(lines), column, lines.file)


def read_tsv(lines: TextLines, column: str | None) -> Iterator[RowOrError]:
    """Tab-separated fields."""
    return _table(parse_tsv(lines), column, lines.file)


def _table(
    records: Iterable[NumberedValue | InputError], column: str | None, file: str
) -> Iterator[RowOrError]:
    """The first row is a header, unless a number is asked for and it looks like any other row."""
    first: list[str] = []
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
            yield make_row(record[at], file, line)


def column_count_error(
    record: Sequence[str], first: Sequence[str], what: str, where: str
) -> InputError:
    """What is wrong with a record that has more or fewer fields than the first."""
    return InputError(
        f"{where}: {len(record)} columns where {what} has {len(first)}",
        fix="quote fields that hold the separator, or repair the row",
    )


def parse_csv(lines: TextLines) -> Iterator[NumberedValue | InputError]:
    """The fields of every record of RFC 4180, with the line it begins on."""
    # The limit belongs to the whole process. It is raised, never put back, so that readers in
    # several threads cannot pull it from under one another.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    # strict: a quote that is never closed is an error, not a very long field
    return _records(csv.reader(lines, strict=True), lines)


def parse_tsv(lines: TextLines) -> Iterator[NumberedValue | InputError]:
    r"""The fields of every line; a quote is a character like any other.

    The registered format (text/tab-separated-values) has no quoting, and corpora rely on it (GLUE's
    begin sentences with a lone quote, which a quoting reader takes for the start of many lines).
    """
    records = map(lambda line: line.rstrip("\r\n").split("\t"), lines)  # noqa: C417 - outlives a raise
    return _records(records, lines)


def _records(
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
            if not width or lines.number > start:  # where the next record begins is anyone's guess
                raise UnreadableFileError(wrong.problem, fix=wrong.fix) from error
            yield wrong
            continue
        # A blank line is no row; but in a .tsv of one column it is an empty field, which has no
        # other way to be written. A .csv says "" there, and has no field at all on a blank line.
        if not record or (record == [""] and width != 1):
            continue
        width = width or len(record)
        yield start, record


def _table_error(error: InputError | csv.Error, where: str) -> InputError:
    if isinstance(error, InputError):
        return error
    return InputError(
        f"{where}: broken quoting: {error}", fix='close quotes, and double ("") inner ones'
    )


def _parquet(path: Path, column: str | None) -> Iterator[RowOrError]:
    """Rows by record batches; `line` is the number of the row."""
    chosen = partial(_only, column=column, where=f"{path}:1")
    for found in read_parquet(path, chosen):
        if isinstance(found, InputError):
            yield found
        else:
            (value,) = found[1].values()
            yield make_row(value, str(path), found[0])


def _only(names: Sequence[str], column: str | None, where: str) -> list[str]:
    return [choose_text_column(names, column, where)]


def read_parquet(
    path: Path, pick: Callable[[Sequence[str]], Sequence[str]] = list
) -> Iterator[NumberedValue | InputError]:
    """Every row as a mapping of the columns that `pick` takes from their names."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingExtraError("reading .parquet", extra="parquet") from error
    number = 0
    try:
        with _seekable(path) as stream:
            # with a buffer a column is streamed, not read whole; checksums are checked if present
            table = ParquetFile(stream, buffer_size=2**20, page_checksum_verification=True)
            names = pick(table.schema_arrow.names)
            for batch in table.iter_batches(BATCH, columns=names, use_threads=False):
                for scalars in zip(*(batch.column(name) for name in names), strict=True):
                    number += 1
                    yield _python(names, scalars, number, path)
            # a damaged page header can make the library pass over rows without a word
            if number != table.metadata.num_rows:
                raise OSError(f"it should hold {table.metadata.num_rows} rows, not {number}")
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableFileError(
            f"{path}:{number + 1}: broken parquet: {reason}", fix="fetch or write the file again"
        ) from error


def _python(
    names: Sequence[str], scalars: Sequence[Any], number: int, file: Path
) -> NumberedValue | InputError:
    try:
        return number, {name: scalar.as_py() for name, scalar in zip(names, scalars, strict=True)}
    except UnicodeDecodeError as error:
        return InputError(f"{file}:{number}: not UTF-8: {error.reason}", fix="write the file again")


@contextmanager
def _seekable(path: Path) -> Iterator[IO[bytes]]:
    """Parquet is read from its end, so a packed file is unpacked to disk first."""
    with open_binary(path) as stream:
        if not split_endings(path)[1]:
            yield stream
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(stream, unpacked)
            unpacked.seek(0)
            yield unpacked


Reader: TypeAlias = Callable[[TextLines, str | None], Iterator[RowOrError]]
READERS: Mapping[str, Reader] = {
    "lines": read_plain_text,
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
}


def extract_rows(
    found: Iterable[NumberedValue | InputError], column: str | None, file: str
) -> Iterator[RowOrError]:
    """The text in every value: a string, a list of lines, or a mapping with one under a column.

    The column is chosen once, at the first mapping, so that no other one's text is taken for it.
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
            yield make_row(value, file, line)


def make_row(value: object, file: str, line: int) -> RowOrError:
    """A string, or a list of lines, as a row."""
    try:
        return Row(as_text(value, f"{file}:{line}"), file, line, is_document=True)
    except InputError as error:
        return error


def as_text(value: object, where: str) -> str:
    """A string, or a list of lines as one, if a model can read it."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        wrong = f"{repr(value)[:40]} is not text"
    elif "\0" in value:
        wrong = "the text holds a NUL"
    elif not _encodes(value):
        wrong = "the text holds half of a surrogate pair"
    else:
        return value
    raise InputError(f"{where}: {wrong}", fix="repair the row, or leave it out")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def choose_text_column(names: Sequence[str], column: str | None, where: str) -> str:
    """The column that holds the text: the one asked for, or found by its name, or the only one."""
    column = find_column(names, column, where)
    if column is None:
        known = {str(name).strip().lower(): name for name in reversed(names)}
        likely = (known[name] for name in TEXT_COLUMNS if name in known)
        column = next(likely, names[0] if len(names) == 1 else None)
    if column is None:
        raise InputError(
            f"{where}: which column holds the text? there are {format_names(names)}",
            fix="name it: --column NAME (column= in Python), or give its number, from 1",
        )
    if names.count(column) > 1:
        raise InputError(f"{where}: two columns are called {column!r}", fix="rename one")
    return column


def iterate_lines(lines: Iterator[str]) -> Iterator[str | InputError]:
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
