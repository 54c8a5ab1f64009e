"""Where a run's data come from, and how its recipe names them, so that it can be resumed."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from cloze.checkpoint.source import builtin
from cloze.data.sources import Row, Source, Sources, as_list, is_stream
from cloze.errors import InputError
from cloze.files import PathLike, absolute_path, expand_user
from cloze.progress import ProgressCallback

UNNAMED = "<objects in Python>"  # data or a model that a recipe cannot name
_REPORT_EVERY = 10_000  # rows


def resolve_sources(sources: Sources, own: Sequence[str]) -> list[Source]:
    """The text to train on: the given sources, or else those of the recipe."""
    found = as_list(sources) or list(own)
    for one in found:
        if isinstance(one, str) and one in builtin() and not os.path.exists(one):  # noqa: PTH110
            raise InputError(
                f"{one} is a model, not text",
                fix=f"give text; to train the model further, use --init-from {one}",
            )
    if not found:
        raise no_text_error("name files, folders or globs, or set data.sources in the recipe")
    return found


def no_text_error(fix: str = "check that the files are not empty") -> InputError:
    """The error of a run without training text."""
    return InputError("there is no text to train on", fix=fix)


def name_sources(sources: Iterable[object]) -> tuple[str, ...]:
    """Sources by absolute path, as a recipe stores them; "-" stands for standard input.

    Objects that follow one another are one entry, however many there are.
    """
    found = ["", *map(_name_source, sources)]
    return tuple(one for before, one in pairwise(found) if not before == one == UNNAMED)


def _name_source(source: Any) -> str:  # noqa: ANN401 - whatever was given
    if not isinstance(source, str | os.PathLike):
        return UNNAMED
    return "-" if is_stream(source) else absolute_path(source)


def iter_texts(rows: Iterable[Row], progress: ProgressCallback | None) -> Iterator[str]:
    """The texts of rows; `progress` is called with the number of megabytes read."""
    size = 0
    for number, row in enumerate(rows, 1):
        size += len(row.text) if row.text.isascii() else len(row.text.encode())
        if progress and number % _REPORT_EVERY == 0:
            progress("megabytes read", size // 10**6, None)
        yield row.text


def resolve_model_name(model: PathLike) -> str:
    """The absolute path of a folder; what is not a folder here, such as a hub name, unchanged."""
    exists = os.path.exists(expand_user(model))  # noqa: PTH110 - never raises
    return absolute_path(model) if exists else str(model)


def check_can_reread(sources: Sequence[Any]) -> None:
    """Raise an error if a resumed run would need text from a pipe or from Python objects."""
    if any((isinstance(one, str) and one == UNNAMED) or is_stream(one) for one in sources):
        raise InputError(
            "this run was started with text from a pipe or from Python, which cannot be read again",
            fix="pass it again, cloze.resume(out, sources=…), or start over with --force",
        )


def check_standard_input(names: Sequence[str], *, resuming: bool = False) -> None:
    """Raise an error for "-" twice, and for "-" in a resumed run into which nothing is piped.

    Whether the data are the same as before is checked when they are read.
    """
    if names.count("-") > 1:
        raise InputError(
            "standard input is named twice but can be read only once",
            fix="save one of the two to a file and name that file",
        )
    if resuming and "-" in names and (sys.stdin is None or sys.stdin.isatty()):
        raise InputError(
            "this run was started with data from standard input, and nothing is piped in",
            fix="pipe the same data in again, or start a new run with files",
        )
