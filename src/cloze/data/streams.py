"""Running text from anywhere, as one stream of rows: files, folders, globs, pipes, data sets.

Nothing is dropped silently. A row that cannot be read names its file, line and reason; whoever
reads chooses whether that ends the reading or is noted and passed over.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from cloze.data.files import PathLike, find
from cloze.data.readers import Outcome, Row, read_file, read_lines, row_of, whole_file
from cloze.data.unpack import Lines
from cloze.errors import InputError

__all__ = ["Row", "Source", "check_rereadable", "inventory", "listed", "rows"]

STDIN = "standard input"

Source: TypeAlias = PathLike | Iterable[str | Mapping[str, Any]]
OnError: TypeAlias = Literal["raise"] | Callable[[InputError], object]
T = TypeVar("T")


def listed(sources: Source | Sequence[Any]) -> list[Any]:
    """One source, or several, as a list."""
    return list(sources) if isinstance(sources, list | tuple) else [sources]


def check_rereadable(
    sources: Source | Sequence[Any], *, fix: str = "save it to a file and name that"
) -> None:
    """Refuse text that is gone after one reading, where more than one is needed."""
    if any(source == "-" or isinstance(source, Iterator) for source in listed(sources)):
        raise InputError(
            "the text is read more than once, and a stream is gone after the first time", fix=fix
        )


def rows(
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
        column: where the text of a table is; found by name when left out.
        on_error: what to do with what cannot be read: raise it, or hand it over and go on.
    """
    report = reporter(on_error)
    streams: list[Iterator[Outcome]] = []
    for source in listed(sources):
        try:
            streams += _streams(source, column)
        except InputError as error:
            report(error)
    return sift(chain.from_iterable(streams), report)


def inventory(sources: Source | list[Source]) -> list[list[str | int]] | None:
    """Name, size and time of every file of the sources, or None if they are not all plain files.

    Sources with the same inventory hold the same text, wherever their folder has been moved to.
    """
    every = listed(sources)
    paths = [s for s in every if isinstance(s, str | os.PathLike) and s != "-"]
    try:
        files = find(paths)
    except InputError:  # told by whoever reads, or passed over
        return None
    if not files or len(paths) < len(every) or not all(map(Path.is_file, files)):
        return None
    folder = os.path.commonpath([file.resolve().parent for file in files])
    return [
        [os.path.relpath(file.resolve(), folder), file.stat().st_size, file.stat().st_mtime_ns]
        for file in files
    ]


def _streams(source: Source, column: str | None) -> list[Iterator[Outcome]]:
    if source == "-":
        return [whole_file(read_lines(Lines(sys.stdin.buffer, STDIN)), STDIN)]
    if isinstance(source, str | os.PathLike):
        return [read_file(path, column) for path in find(source)]
    return [_given(check_rows(source), column)]


def check_rows(source: Iterable[T]) -> Iterable[T]:
    """The same source, if rows can come from it."""
    if isinstance(source, Mapping) or hasattr(source, "columns"):  # splits, or a data frame
        raise InputError(
            f"a {type(source).__name__} is not a stream of rows",
            fix="pass one part: its ['train'] of splits, its ['text'] of a table; "
            "a list of rows goes inside another list",
        )
    return source


def _given(source: Iterable[object], column: str | None) -> Iterator[Outcome]:
    name = f"<{type(source).__name__}>"
    for number, value in enumerate(source, 1):
        yield row_of(value, column, name, number)


def reporter(on_error: OnError) -> Callable[[InputError], object]:
    """What to call with an error."""
    return _raise if on_error == "raise" else on_error


def _raise(error: InputError) -> None:
    raise error


def sift(outcomes: Iterable[T | InputError], report: Callable[[InputError], object]) -> Iterator[T]:
    """What could be read; the rest is reported."""
    for outcome in outcomes:
        if isinstance(outcome, InputError):
            report(outcome)
        else:
            yield outcome
