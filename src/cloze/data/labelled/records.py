"""Records of labelled data: rows of tables, values of JSON, items of data sets."""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from cloze.data.input_files import (
    MAX_LINE_BYTES,
    PEEK_BYTES,
    STDIN,
    TextLines,
    UnreadableFileError,
    detect_file_format,
    find_files,
    open_binary,
    open_text,
    split_endings,
)
from cloze.data.labelled.examples import Origin, format_position
from cloze.data.labelled.formats import describe_wrong_format
from cloze.data.objects import Rows, open_rows, pair_texts_with_labels
from cloze.data.readers import (
    NumberedValue,
    check_complete,
    column_count_error,
    parse_json_lines,
    parse_table,
    read_parquet,
)
from cloze.data.sources import (
    OnError,
    Source,
    as_list,
    get_error_handler,
    handle_errors,
    is_stream,
)
from cloze.errors import InputError
from cloze.files import PathLike

MAX_JSON_CHARS = 2**30  # JSON files are loaded into memory as a whole

# File name endings and formats.
JSON_FORMATS: Mapping[str, str] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
TABLE_FORMATS: Mapping[str, str] = {**JSON_FORMATS, ".csv": "csv", ".tsv": "tsv", ".txt": "tsv"}
# An object, an array of objects, or DREAM's nested arrays; on one or several lines.
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:(?:\[\s*)*\{\s*(?:"|$)|(?:\[\s*){2,}"|[\[\s]+$)')


class Pipe:
    """Standard input or a named pipe; the bytes read to detect its format are read again."""

    def __init__(self, source: PathLike) -> None:
        self.name = STDIN if source == "-" else os.fspath(source)
        self._path = None if source == "-" else Path(source)
        self._stream: BinaryIO | None = None
        self._first = b""  # up to the first non-blank line

    def detect_format(self, formats: Mapping[str, str]) -> str:
        """The format: by its ending, if that is in `formats`, else by its first bytes.

        JSON is recognized by how it begins. Anything else is in columns if `formats` has them, or a
        table, whose delimiter is detected.
        """
        ending = "" if self._path is None else split_endings(self._path)[0]
        if ending in formats:
            return formats[ending]
        self._open()
        known = set(formats.values())
        if _JSON.match(self._first) or known.isdisjoint(("tsv", "columns")):
            return "json"
        if "columns" in known:
            return "columns"
        return "csv" if b"," in self._first and b"\t" not in self._first else "tsv"

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the stream, from the first byte."""
        stream = self._open()
        try:
            with io.BufferedReader(_JoinedStream(self._first, stream)) as whole:
                yield whole
        finally:
            if self._path is not None:
                stream.close()

    def _open(self) -> BinaryIO:
        if self._stream is None:
            self._stream = sys.stdin.buffer if self._path is None else open_binary(self._path)
            while not self._first.strip() and (line := self._stream.readline(MAX_LINE_BYTES)):
                self._first += line
        return self._stream


class _JoinedStream(io.RawIOBase):
    """The bytes already read from a stream, followed by the rest of it."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        if self._first:
            taken, self._first = self._first[: len(buffer)], self._first[len(buffer) :]
        else:
            taken = self._rest.read1(len(buffer))  # type: ignore[attr-defined]  # of buffered streams
        buffer[: len(taken)] = taken
        return len(taken)


DataInput: TypeAlias = Path | Pipe | Rows  # a file, a pipe, or the rows of an object
T = TypeVar("T")


class Record(NamedTuple):
    """A tuple of fields or a JSON value, with its file and line."""

    value: Any
    file: str
    line: int  # from 1; in Parquet files, data sets and arrays the row number

    @property
    def where(self) -> str:
        return format_position(self.file, self.line)

    def make_origin(self, name: object = None) -> Origin:
        return Origin(file=self.file, line=self.line, id=None if name is None else str(name))


def read_inputs(
    sources: Source | list[Source],
    formats: Mapping[str, str],
    read: Callable[[DataInput], Iterator[T | InputError]],
    on_error: OnError,
    task: str | None = None,
) -> Iterator[T]:
    """Apply `read` to every input of every source lazily, in order.

    A missing file is reported immediately, not when it is reached. If the first row of a file for
    another task than `task` cannot be read, the error says which data the task needs.
    """
    report = get_error_handler(on_error)
    streams: list[Iterator[T | InputError]] = []
    for source in split_sources(sources):
        try:
            parts = find_inputs(source, formats)
        except InputError as error:
            if task and isinstance(source, str | os.PathLike) and os.path.isfile(source):  # noqa: PTH113 - never raises
                error = describe_wrong_format(error, Path(source), task)
            report(error)
        else:
            for part in parts:
                rows = check_complete(read(part), format_input_name(part))
                if task and isinstance(part, Path):
                    rows = _check_task(rows, part, task)
                streams.append(rows)
    return handle_errors(chain.from_iterable(streams), report)


def _check_task(rows: Iterator[T | InputError], path: Path, task: str) -> Iterator[T | InputError]:
    """The same rows; an error before the first of them says which data the task needs."""
    try:
        first = next(rows, None)
    except InputError as error:
        raise describe_wrong_format(error, path, task) from error
    if isinstance(first, InputError):
        first = describe_wrong_format(first, path, task)
    if first is not None:
        yield first
    yield from rows


def split_sources(data: Source | Sequence[Any]) -> list[Any]:
    """A list of sources, from one or several; lists of rows and (texts, labels) are one source."""
    labelled = pair_texts_with_labels(data)
    return as_list(data) if labelled is None else [labelled]


def find_inputs(source: Source, formats: Mapping[str, str]) -> list[DataInput]:
    """The files that a source names, or the rows of an object."""
    if not isinstance(source, str | os.PathLike):
        return [open_rows(source)]
    if is_stream(source):
        return [Pipe(source)]
    return [Pipe(path) if path.is_fifo() else path for path in find_files(source, formats)]


def format_input_name(part: DataInput) -> str:
    """The name of an input in error messages."""
    return str(part) if isinstance(part, Path) else part.name


def detect_input_format(part: Path | Pipe, formats: Mapping[str, str]) -> str:
    """The format of an input; a .txt file may contain JSON, as those of RACE do."""
    if isinstance(part, Pipe):
        return part.detect_format(formats)
    format_ = detect_file_format(part, formats)
    if format_ == "tsv" and split_endings(part)[0] == ".txt":
        # data that cannot be decompressed are reported when they are read
        with suppress(OSError), open_binary(part) as stream:
            return "json" if _JSON.match(stream.readline(PEEK_BYTES)) else format_
    return format_


def open_input(part: Path | Pipe) -> AbstractContextManager[BinaryIO]:
    """Open an input for reading bytes."""
    return part.open() if isinstance(part, Pipe) else open_binary(part)


def read_records(part: DataInput, formats: Mapping[str, str]) -> Iterator[Record | InputError]:
    """The records of an input; a row that cannot be read becomes an error."""
    name = format_input_name(part)
    for found in _read_values(part, formats):
        yield found if isinstance(found, InputError) else Record(found[1], name, found[0])


def read_mappings(part: DataInput, formats: Mapping[str, str]) -> Iterator[Record | InputError]:
    """The same, with the fields of csv and tsv as mappings by the names in their header."""
    names: tuple[str, ...] = ()
    for record in read_records(part, formats):
        if isinstance(record, InputError) or not isinstance(record.value, tuple):
            yield record
        elif not names:
            names = record.value
        elif len(record.value) != len(names):
            yield column_count_error(record.value, names, "the header", record.where)
        else:
            yield record._replace(value=dict(zip(names, record.value, strict=True)))


def find_class_names(part: DataInput, column: str) -> list[str] | None:
    """The class names of a `datasets` column that contains class numbers."""
    features = part.features if isinstance(part, Rows) else None
    feature = features.get(column) if isinstance(features, Mapping) else None
    return getattr(getattr(feature, "feature", feature), "names", None)


def _read_values(
    part: DataInput, formats: Mapping[str, str]
) -> Iterable[NumberedValue | InputError]:
    if not isinstance(part, Path | Pipe):
        return enumerate(part, 1)
    format_ = detect_input_format(part, formats)
    if format_ == "json":
        return _read_json(part)
    if format_ == "parquet":  # a pipe cannot be read from its end, and reports that
        return read_parquet(Path(format_input_name(part)))
    return _read_lines(part, format_)


def _read_lines(part: Path | Pipe, format_: str) -> Iterator[NumberedValue | InputError]:
    with open_input(part) as stream:
        lines = TextLines(stream, format_input_name(part))
        if format_ == "jsonl":
            yield from parse_json_lines(lines)
            return
        for found in parse_table(lines, format_):
            yield found if isinstance(found, InputError) else (found[0], tuple(found[1]))


def _read_json(part: Path | Pipe) -> Iterator[NumberedValue | InputError]:
    """The items of an array (in SQuAD under "data"), or JSON lines with the ending .json."""
    name, text = format_input_name(part), _read_whole_text(part)
    if not text.strip():
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") != "Extra data":
            raise UnreadableFileError(
                f"{name}:{getattr(error, 'lineno', 1)}: invalid JSON: {error}",
                fix="download or write the file again",
            ) from error
        yield from parse_json_lines(TextLines(io.BytesIO(text.encode()), name))
    else:
        if isinstance(value, Mapping) and isinstance(value.get("data"), list):
            value = value["data"]
        yield from enumerate(value if isinstance(value, list) else [value], 1)


def _read_whole_text(part: Path | Pipe) -> str:
    """The whole text; a pipe cannot be read again to find the line of an error."""
    name, whole = format_input_name(part), io.BytesIO()
    if isinstance(part, Pipe):
        with part.open() as stream:
            size = whole.write(stream.read(MAX_JSON_CHARS + 1))
        whole.seek(0)
        text = "".join(TextLines(whole, name)) if size <= MAX_JSON_CHARS else ""
    else:
        with open_text(part) as decoded:
            text = decoded.read(MAX_JSON_CHARS + 1)
        size = len(text)
    if size > MAX_JSON_CHARS:
        raise UnreadableFileError(
            f"{name}: a .json file may have at most {MAX_JSON_CHARS >> 20} MiB",
            fix="convert it to JSON lines (jq -c '.[]') in a file that ends in .jsonl",
        )
    return text
