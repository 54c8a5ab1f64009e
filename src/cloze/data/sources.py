"""Rows of text from any source: files, folders, globs, pipes, data sets, Python iterables.

Nothing is dropped silently. The error of a row that cannot be read names its file, line and reason;
the caller decides whether it stops the reading or the row is skipped.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from cloze.data.input_files import STDIN, TEXT_FORMATS, TextLines, find_files, split_endings
from cloze.data.objects import Frame, open_rows
from cloze.data.readers import (
    READERS,
    Row,
    RowOrError,
    check_complete,
    detect_stdin_format,
    extract_rows,
    read_file,
)
from cloze.errors import InputError
from cloze.files import PathLike

__all__ = [
    "Row",
    "Source",
    "Sources",
    "as_list",
    "check_rereadable",
    "collect_sources",
    "fingerprint_files",
    "is_stream",
    "read_rows",
    "store_streams",
]

_EMPTY_FIX = "check the command that writes to the pipe"

Source: TypeAlias = (
    PathLike
    | Frame
    | Iterable[str]
    | Iterable[Mapping[str, Any]]
    | Iterable[str | Mapping[str, Any]]
)
Sources: TypeAlias = Source | Iterable[Source]
OnError: TypeAlias = Literal["raise"] | Callable[[InputError], object]
T = TypeVar("T")


def as_list(sources: PathLike | Frame | Iterable[Any]) -> list[Any]:
    """A list of sources, from one or several; a list of mappings is one source."""
    if not isinstance(sources, list | tuple):
        return [sources]
    is_rows = bool(sources) and isinstance(sources[0], Mapping)
    return [sources] if is_rows else list(sources)


def collect_sources(sources: Sources) -> list[Any]:
    """A list of sources, also from an iterator or a set of paths, such as `folder.glob("*.txt")`.

    An iterator of anything else is one source: the rows of a stream.
    """
    if isinstance(sources, Set):
        return list(sources)
    if not isinstance(sources, Iterator):
        return as_list(sources)
    first = list(islice(sources, 1))
    is_paths = bool(first) and isinstance(first[0], os.PathLike)
    return [*first, *sources] if is_paths else [_chain(first, sources)]


def _chain(first: Iterable[T], rest: Iterable[T]) -> Iterator[T]:
    yield from first
    yield from rest


def check_rereadable(sources: Sources, *, fix: str = "save it to a file and name that") -> None:
    """Raise if a source can be read only once, but must be read several times."""
    if any(map(is_stream, as_list(sources))):
        raise InputError(
            "the text must be read several times, but a stream can be read only once", fix=fix
        )


def is_stream(source: Source) -> bool:
    """Whether a source can be read only once: standard input, a named pipe, an iterator."""
    if not isinstance(source, str | os.PathLike):
        return isinstance(source, Iterator)
    try:
        return source == "-" or Path(source).is_fifo()
    except OSError:  # reported when it is read
        return False


@contextmanager
def store_streams(
    sources: list[Source],
    folder: Path,
    *,
    text_column: str | int | None = None,
    skip_broken: bool = False,
) -> Iterator[list[Source]]:
    """The same sources with streams stored in files, in a temporary folder.

    Args:
        sources: sources as for `read_rows`.
        folder: folder for the files.
        text_column: text column of tables.
        skip_broken: store items of an iterator that cannot be read as null instead of raising.
    """
    if not any(map(is_stream, sources)):
        yield sources
        return
    with tempfile.TemporaryDirectory(prefix=".text-", dir=folder) as temporary:
        yield [
            _store_stream(source, Path(temporary) / str(number), _to_name(text_column), skip_broken)
            if is_stream(source)
            else source
            for number, source in enumerate(sources, 1)
        ]


def _store_stream(source: Source, folder: Path, column: str | None, skip_broken: bool) -> Path:
    """Store a stream in a file with the same contents."""
    folder.mkdir()
    if not isinstance(source, str | os.PathLike):
        path = folder / "rows.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row in _read_object(source, column):
                if isinstance(row, Row):
                    file.write(json.dumps(row.text) + "\n")
                elif skip_broken:
                    file.write("null\n")  # also an invalid row, so that it is reported again
                else:
                    raise row
        return path
    has_format = source != "-" and split_endings(source)[0] in TEXT_FORMATS
    format_ = detect_stdin_format(column, may_be_text=True) if source == "-" else "lines"
    ending = "txt" if format_ == "lines" else format_
    path = folder / (Path(source).name if has_format else f"{STDIN}.{ending}")
    with path.open("wb") as file:
        if source == "-":
            shutil.copyfileobj(sys.stdin.buffer, file)
        else:
            with Path(source).open("rb") as stream:
                shutil.copyfileobj(stream, file)
    if not path.stat().st_size:
        raise InputError(f"{STDIN if source == '-' else source}: there is no input", fix=_EMPTY_FIX)
    return path


def read_rows(
    sources: Sources,
    *,
    text_column: str | int | None = None,
    on_error: OnError = "raise",
) -> Iterator[Row]:
    """Read the rows of all sources lazily, in order.

    A missing file is reported immediately, not when it is reached.

    Args:
        sources: a path, folder, glob, or `-` for standard input (plain lines, JSON lines, or with
            `text_column` any table); a data frame (pandas, polars), a
            `datasets` object, a list or another iterable of mappings, a column of texts; or a list
            of these. Strings in a list are paths.
        text_column: text column of tables: name or 1-based number (default: auto-detected by name).
            A csv or tsv has a header, unless a number is given and its first row looks like data.
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    report = get_error_handler(on_error)
    streams: list[Iterator[RowOrError]] = []
    for source in as_list(sources):
        try:
            streams += _open_source(source, _to_name(text_column))
        except InputError as error:
            report(error)
    return _read_streams(streams, report)


def _to_name(column: str | int | None) -> str | None:
    return None if column is None else str(column)


def _read_streams(
    streams: list[Iterator[RowOrError]], report: Callable[[InputError], object]
) -> Iterator[Row]:
    """The rows of all streams; files are closed immediately after an error."""
    try:
        yield from handle_errors(chain.from_iterable(streams), report)
    finally:
        for stream in streams:
            if isinstance(stream, Generator):
                stream.close()


def fingerprint_files(sources: Sources) -> list[list[str | int]] | None:
    """Name, size and modification time of every file, or None if some source is not a plain file.

    Sources with the same fingerprint contain the same text, even if their folder has been moved.
    """
    listed = as_list(sources)
    paths = [s for s in listed if isinstance(s, str | os.PathLike) and s != "-"]
    try:
        files = find_files(paths)
    except InputError:  # reported, or skipped, when it is read
        return None
    if not files or len(paths) < len(listed) or not all(map(Path.is_file, files)):
        return None
    folder = os.path.commonpath([file.resolve().parent for file in files])
    return [
        [os.path.relpath(file.resolve(), folder), file.stat().st_size, file.stat().st_mtime_ns]
        for file in files
    ]


def _open_source(source: Source, column: str | None) -> list[Iterator[RowOrError]]:
    if not isinstance(source, str | os.PathLike):
        return [_read_object(source, column)]
    if source == "-":
        return [check_complete(_read_stdin(column), STDIN)]
    return [read_file(path, column) for path in find_files(source)]


def _read_stdin(column: str | None) -> Iterator[RowOrError]:
    format_ = detect_stdin_format(column)  # when the first row is needed: it waits for input
    yield from READERS[format_](TextLines(sys.stdin.buffer, STDIN), column)


def _read_object(source: object, column: str | None) -> Iterator[RowOrError]:
    rows = open_rows(source)
    return extract_rows(enumerate(rows, 1), column, rows.name)


def get_error_handler(on_error: OnError) -> Callable[[InputError], object]:
    """The function to call with each error."""
    return _raise if on_error == "raise" else on_error


def _raise(error: InputError) -> None:
    raise error


def handle_errors(
    outcomes: Iterable[T | InputError], report: Callable[[InputError], object]
) -> Iterator[T]:
    """Yield the values, and call `report` with the errors."""
    for outcome in outcomes:
        if isinstance(outcome, InputError):
            report(outcome)
        else:
            yield outcome
