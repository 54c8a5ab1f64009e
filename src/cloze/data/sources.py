"""Running text from anywhere, as one stream of rows: files, folders, globs, pipes, data sets.

Nothing is dropped silently. A row that cannot be read names its file, line and reason; whoever
reads chooses whether that ends the reading or is noted and passed over.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from cloze.data.input_files import TEXT_FORMATS, TextLines, find_files, split_endings
from cloze.data.readers import (
    Row,
    RowOrError,
    check_complete,
    extract_rows,
    read_file,
    read_plain_text,
)
from cloze.errors import InputError
from cloze.files import PathLike

__all__ = [
    "Row",
    "Source",
    "as_list",
    "check_rereadable",
    "fingerprint_files",
    "is_stream",
    "read_rows",
    "store_streams",
]

STDIN = "standard input"
_FILL = "look at what comes before it in the pipe"

Source: TypeAlias = PathLike | Iterable[str | Mapping[str, Any]]
OnError: TypeAlias = Literal["raise"] | Callable[[InputError], object]
T = TypeVar("T")


def as_list(sources: Source | Sequence[Any]) -> list[Any]:
    """One source, or several, as a list."""
    return list(sources) if isinstance(sources, list | tuple) else [sources]


def check_rereadable(
    sources: Source | Sequence[Any], *, fix: str = "save it to a file and name that"
) -> None:
    """Refuse text that is gone after one reading, where more than one is needed."""
    if any(map(is_stream, as_list(sources))):
        raise InputError(
            "the text is read more than once, and a stream is gone after the first time", fix=fix
        )


def is_stream(source: Source) -> bool:
    """Whether text is gone after one reading: standard input, a named pipe, an iterator."""
    if not isinstance(source, str | os.PathLike):
        return isinstance(source, Iterator)
    try:
        return source == "-" or Path(source).is_fifo()
    except OSError:  # told by whoever reads it
        return False


@contextmanager
def store_streams(
    sources: list[Source], folder: Path, *, column: str | None = None, skip_broken: bool = False
) -> Iterator[list[Source]]:
    """The same sources with files in the place of streams, in a folder that is gone in the end.

    Args:
        sources: what `rows` reads.
        folder: where there is room for the files.
        column: where the text of a table is.
        skip_broken: leave items of an iterator that cannot be read for whoever reads the file.
    """
    if not any(map(is_stream, sources)):
        yield sources
        return
    with tempfile.TemporaryDirectory(prefix=".text-", dir=folder) as place:
        yield [
            _kept(source, Path(place) / str(number), column, skip_broken)
            if is_stream(source)
            else source
            for number, source in enumerate(sources, 1)
        ]


def _kept(source: Source, folder: Path, column: str | None, skip_broken: bool) -> Path:
    """What a stream holds, in a file that reads the same."""
    folder.mkdir()
    if not isinstance(source, str | os.PathLike):
        path = folder / "rows.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row in _given(check_row_source(source), column):
                if isinstance(row, Row):
                    file.write(json.dumps(row.text) + "\n")
                elif skip_broken:
                    file.write("null\n")  # no text either, and counted as such
                else:
                    raise row
        return path
    known = source != "-" and split_endings(source)[0] in TEXT_FORMATS
    path = folder / (Path(source).name if known else f"{STDIN}.txt")
    with path.open("wb") as file:
        if source == "-":
            shutil.copyfileobj(sys.stdin.buffer, file)
        else:
            with Path(source).open("rb") as stream:
                shutil.copyfileobj(stream, file)
    if not path.stat().st_size:
        raise InputError(f"{STDIN if source == '-' else source}: there is no text in it", fix=_FILL)
    return path


def read_rows(
    sources: Source | list[Source],
    *,
    column: str | None = None,
    on_error: OnError = "raise",
) -> Iterator[Row]:
    """Every row of every source, in order, read as it is asked for.

    A missing file is noticed at once, not when its turn comes.

    Args:
        sources: a path, folder, glob, or `-` for standard input; an iterable of texts or of
            mappings, such as a `datasets` object; or a list of these. In a list strings are paths.
        column: where the text of a table is, by name or by number from 1; found by name when left
            out. A csv or tsv has a header, unless a number is given and its first row is like data.
        on_error: what to do with what cannot be read: raise it, or hand it over and go on.
    """
    report = error_handler(on_error)
    streams: list[Iterator[RowOrError]] = []
    for source in as_list(sources):
        try:
            streams += _streams(source, column)
        except InputError as error:
            report(error)
    return _sifted(streams, report)


def _sifted(
    streams: list[Iterator[RowOrError]], report: Callable[[InputError], object]
) -> Iterator[Row]:
    """The rows of all; a file in which an error ended the reading is closed at once."""
    try:
        yield from handle_errors(chain.from_iterable(streams), report)
    finally:
        for stream in streams:
            if isinstance(stream, Generator):
                stream.close()


def fingerprint_files(sources: Source | list[Source]) -> list[list[str | int]] | None:
    """Name, size and time of every file of the sources, or None if they are not all plain files.

    Sources with the same inventory hold the same text, wherever their folder has been moved to.
    """
    every = as_list(sources)
    paths = [s for s in every if isinstance(s, str | os.PathLike) and s != "-"]
    try:
        files = find_files(paths)
    except InputError:  # told by whoever reads, or passed over
        return None
    if not files or len(paths) < len(every) or not all(map(Path.is_file, files)):
        return None
    folder = os.path.commonpath([file.resolve().parent for file in files])
    return [
        [os.path.relpath(file.resolve(), folder), file.stat().st_size, file.stat().st_mtime_ns]
        for file in files
    ]


def _streams(source: Source, column: str | None) -> list[Iterator[RowOrError]]:
    if source == "-":
        return [check_complete(read_plain_text(TextLines(sys.stdin.buffer, STDIN)), STDIN)]
    if isinstance(source, str | os.PathLike):
        return [read_file(path, column) for path in find_files(source)]
    return [_given(check_row_source(source), column)]


def check_row_source(source: Iterable[T]) -> Iterable[T]:
    """The same source, if rows can come from it."""
    if isinstance(source, Mapping) or hasattr(source, "columns"):  # splits, or a data frame
        raise InputError(
            f"a {type(source).__name__} is not a stream of rows",
            fix="pass one part: its ['train'] of splits, its ['text'] of a table; "
            "a list of rows goes inside another list",
        )
    return source


def _given(source: Iterable[object], column: str | None) -> Iterator[RowOrError]:
    return extract_rows(enumerate(source, 1), column, f"<{type(source).__name__}>")


def error_handler(on_error: OnError) -> Callable[[InputError], object]:
    """What to call with an error."""
    return _raise if on_error == "raise" else on_error


def _raise(error: InputError) -> None:
    raise error


def handle_errors(
    outcomes: Iterable[T | InputError], report: Callable[[InputError], object]
) -> Iterator[T]:
    """What could be read; the rest is reported."""
    for outcome in outcomes:
        if isinstance(outcome, InputError):
            report(outcome)
        else:
            yield outcome
