"""What all commands share: options, where texts come from, how results and errors are shown.

This module is imported by `cloze --help`: anything heavier than typer is imported where it is used.
"""

import errno
import functools
import inspect
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from cloze.errors import ClozeError, InputError
from cloze.files import open_for_writing, replace_non_finite

if TYPE_CHECKING:
    from pathlib import Path

    from cloze.data.sources import Row

FAILED = 1  # 2 is typer's own, for bad usage
INTERRUPTED = 130  # as shells report Ctrl-C
CLOSED_PIPE = 141  # as shells report a program whose reader left (`| head`)
STDOUT = "standard output"
ARGUMENT = "TEXT"  # what stands for the file of a text that was written on the command line


def _use_threads(threads: int | None) -> int | None:
    """Tell the libraries, which read these when they are imported: later than this."""
    if threads is not None:
        for library in ("OMP", "MKL", "RAYON"):
            os.environ[f"{library}_NUM_THREADS"] = str(threads)
    return threads


Json = Annotated[
    bool, typer.Option("--json", help="Print JSON: a line for each input, or one for all.")
]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, mps.")]
Dtype = Annotated[str, typer.Option(metavar="NAME", help="float32, bfloat16 or float16.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", callback=_use_threads, help="Processor threads to use."),
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of all that is random.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]

ModelFolder = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help='A model folder, a built-in model, or "org/name" on the hub.'
    ),
]
Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; - reads standard input.")
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="PATH", help="Read texts from a file, folder, glob or -."),
]
Column = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Of a table, the text: name or number from 1.")
]
Policy = Annotated[
    str | None,
    typer.Option(metavar="CHOICE", help="Too long a text: head, tail, head+tail, window."),
]
Stride = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens that windows share; unsaid, a quarter.")
]
# where labelled data have what
TextColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The text: name or number. [found]")
]
PairColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The second text of a pair.")
]
LabelColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="The label.")]
TagColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Of the tags.")]
Scheme = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the tags: IOB1, IOB2, BMES. [found]")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Pass over rows that cannot be read, and count them.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


class _Shared(NamedTuple):
    option: Any
    default: object
    shown: bool = False


# Every command takes these, so that a script may pass them to any. A command declares the ones it
# puts to use; the others have nothing to change in it and are not listed in its help.
SHARED = {
    "as_json": _Shared(Json, False),
    "device": _Shared(Device, None),
    "dtype": _Shared(Dtype, "float32"),
    "threads": _Shared(Threads, None, shown=True),  # works through its callback alone
    "seed": _Shared(Seed, 0),
    "quiet": _Shared(Quiet, False),
}


def make_command(verb: Callable[..., None]) -> Callable[..., None]:
    """A command from its function: takes the shared options, turns errors into exit codes."""
    signature = inspect.signature(verb, eval_str=True)
    declared = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    for parameter in declared:
        _show_brackets(parameter)
    undeclared = [name for name in SHARED if name not in signature.parameters]

    @functools.wraps(verb)
    def command(**given: object) -> None:
        for name in undeclared:
            del given[name]
        try:
            verb(**given)
        except ClozeError as error:
            print_error(error)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            discard_stdout()
            raise typer.Exit(CLOSED_PIPE) from error
        except OSError as error:
            print_error(describe_os_error(error))
            raise typer.Exit(FAILED) from error

    added = [_parameter(name) for name in undeclared]
    whole = signature.replace(parameters=[*declared, *added])
    command.__signature__ = whole  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in whole.parameters.items()}
    return command


def _show_brackets(parameter: inspect.Parameter) -> None:
    """Let help say [a quarter]: rich would take that for markup, and leave it out."""
    for info in getattr(parameter.annotation, "__metadata__", ()):
        if info.help:
            info.help = re.sub(r"(?<!\\)\[", r"\\[", info.help)


def _parameter(name: str) -> inspect.Parameter:
    option, default, shown = SHARED[name]
    kind, info = option.__origin__, copy(option.__metadata__[0])
    info.hidden = not shown
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )


def print_error(error: ClozeError) -> None:
    """The problem, then the remedy, on standard error."""
    _tell("error:", "red", error.problem)
    _tell("fix:", "green", error.fix)


def show_warning(others: Callable[..., None]) -> Callable[..., None]:
    """Shows our own warnings as what they say, on a line; `others` shows those of libraries."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,  # noqa: ANN401 - as the library has it
        line: str | None = None,
    ) -> None:
        if category.__module__.partition(".")[0] == "cloze":
            _tell("warning:", "yellow", " ".join(str(message).split()))
        else:
            others(message, category, filename, lineno, file, line)

    return show


def _tell(word: str, colour: str, text: str) -> None:
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    shown = word if plain else typer.style(word, fg=colour, bold=True)
    typer.echo(f"{shown} {text}", err=True)


_REMEDIES = {
    errno.ENOSPC: "make room there, or write to another disk",
    errno.EDQUOT: "make room there, or write to another disk",
    errno.EFBIG: "let files grow larger (ulimit -f), or write to another disk",
    errno.EROFS: "write to another place",
    errno.EACCES: "choose another place, or get leave to use this one",
    errno.EPERM: "choose another place, or get leave to use this one",
}


def describe_os_error(error: OSError) -> ClozeError:
    """What the system refused, told as our own errors are, with its place where that is known."""
    if error.filename == STDOUT:
        discard_stdout()  # so that it is told once
    told = str(error.strerror or error)
    return InputError(
        told if error.filename is None else f"{error.filename}: {told}",
        fix=_REMEDIES.get(error.errno or 0, "name another place, whose folder is there"),
    )


def wrap_stdout(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream as UTF-8, whose failures say that they are of standard output."""
    return io.TextIOWrapper(
        open_for_writing(stream.fileno(), name=STDOUT),
        # pieces and JSON are UTF-8 under any locale, and no file name is a reason to fail
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=stream.line_buffering or stream.write_through,
    )


def discard_stdout() -> None:
    """Send what is still to be flushed nowhere: whoever was reading has left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Skipped:
    """Takes what cannot be read: the first few errors are shown, all are counted."""

    SHOWN = 10

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: ClozeError) -> None:
        self.count += 1
        if self.count <= self.SHOWN:
            print_error(error)

    def tell(self, *, passed_over: bool = True) -> None:
        """Say how many there were, if any."""
        if self.count:
            bad = (
                "passed over {:,} that could not be read"
                if passed_over
                else "{:,} could not be read"
            )
            typer.echo(bad.format(self.count), err=True)


def read_inputs(
    inputs: Sequence[str] | None,
    files: Sequence[str] | None = None,
    column: str | None = None,
    *,
    on_error: Literal["raise"] | Callable[[InputError], object] = "raise",
) -> "Iterator[Row]":
    """Texts from the arguments (`-` is standard input), then from files; else what is piped in."""
    from cloze.data.sources import read_rows

    if not inputs and not files:
        if sys.stdin is None or sys.stdin.isatty():
            raise typer.BadParameter(
                "no text: write one after the model, name a file with --file, or pipe lines in",
                param_hint="TEXT",
            )
        inputs = ["-"]
    given = [
        read_rows("-", on_error=on_error) if text == "-" else iter([_argument(text, number)])
        for number, text in enumerate(inputs or [], 1)
    ]
    return chain(*given, read_rows(list(files or []), column=column, on_error=on_error))


def _argument(text: str, number: int) -> "Row":
    from cloze.data.sources import Row

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"TEXT {number} is not UTF-8", fix="use a UTF-8 terminal, or a file with --file"
        ) from error
    return Row(text, ARGUMENT, number, is_document=True)


def check_svg_path(path: "Path | None", force: bool) -> None:
    """Refuse, before any work is done, a place where no picture can be written."""
    from cloze.files import check_output_path

    if path is None:
        return
    if path.suffix.lower() != ".svg":
        raise InputError(
            f"{path}: pictures are written as SVG", fix="give it a name that ends in .svg"
        )
    check_output_path(path, force, file=True)


def print_json(value: object) -> None:
    """One line of JSON, characters as they are; what is no number is null."""
    print(json.dumps(replace_non_finite(value), ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on a terminal; elsewhere lines with tabs, for other programs to read."""
    if not sys.stdout.isatty():
        for row in chain([columns], rows):
            print(*(printable(str(cell)) for cell in row), sep="\t")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(printable(title)) if title else None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:  # as Text, in which brackets are not markup
        table.add_row(*(Text(printable(format_cell(cell))) for cell in row))
    Console().print(table)


def format_cell(cell: object) -> str:
    """A cell of a table; a count with commas."""
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


# What turns the direction of all that follows, and what nobody sees and nothing is joined by.
_HIDDEN = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2060\ufeff")


def printable(text: str) -> str:
    """The same without characters that move the cursor, break the line or turn its direction.

    Joiners, which letters and emoji are written with, and spaces of any width stay.
    """
    return text if text.isprintable() else "".join(map(_seen, text))


def _seen(character: str) -> str:
    harmful = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in _HIDDEN
    return character.encode("unicode_escape").decode() if harmful else character


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar per stage on standard error, for verbs that report (stage, done, of how many)."""
    if quiet or not sys.stderr.isatty():
        yield lambda _stage, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        stages: dict[str, Any] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done, total=total)

        yield show
