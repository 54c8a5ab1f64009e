"""What all commands share: options, inputs, errors, exit codes, progress bars.

`cloze --help` imports this module: anything heavier than typer is imported where it is used.
"""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cloze.errors import ClozeError, InputError
from cloze.files import ARGUMENT, is_data_file, open_for_writing
from cloze.terminal import LINES, escape_control_characters

if TYPE_CHECKING:
    from pathlib import Path

    from cloze.data.sources import Row

# exit codes; 2 is typer's, for bad usage
FAILED = 1
INTERRUPTED = 130  # as shells report Ctrl-C
CLOSED_PIPE = 141  # as shells report a closed pipe (`| head`)
STDOUT = "standard output"
# sections of the help, after the options of the command itself
INPUT, GENERAL = "Input", "General"


def _use_threads(threads: int | None) -> int | None:
    """Set the variables that the libraries read when they are imported, which is later."""
    if threads is not None:
        for library in ("OMP", "MKL", "RAYON"):
            os.environ[f"{library}_NUM_THREADS"] = str(threads)
    return threads


Json = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=GENERAL, help="Print the results as JSON, one object per line."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=GENERAL,
        help="Device to run on: cpu, cuda, cuda:1 or mps (default: auto-detected).",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=GENERAL,
        help="Data type to compute with: float32, bfloat16, float16, int8 (encoders on a CPU) or "
        "auto (the fastest one that is exact enough, measured once).",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=GENERAL,
        callback=_use_threads,
        help="Number of CPU threads (default: auto-detected).",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", rich_help_panel=GENERAL, help="Seed of the random number generator."
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", rich_help_panel=GENERAL, help="Show no progress bars and no log lines."
    ),
]

ModelFolder = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help='Model folder, name of a built-in model, or "org/name" on the Hugging Face Hub.',
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="One or more texts; - reads standard input: one text per line, JSON lines, or with "
        "--text-column a table.",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="PATH",
        rich_help_panel=INPUT,
        help="Read texts from a file, a folder or a glob (txt, jsonl, csv, tsv, parquet), or from "
        "standard input (-); may be repeated.",
    ),
]
Truncation = Annotated[
    str | None,
    typer.Option(
        metavar="CHOICE",
        help="What to do with texts that are too long: head, tail or head+tail keep that part; "
        "window splits the text into overlapping windows; error rejects the text (default: the "
        "model's setting, else head).",
    ),
]
PromptTruncation = Annotated[
    str | None,
    typer.Option(
        metavar="CHOICE",
        help="What to do with texts that are longer than the maximum of a causal BERT or GPT, or "
        "than 65,536 tokens for an LSTM: tail reads the last tokens, error "
        "rejects the text (default: tail).",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="RETRO: retrieve neighbors from this database of chunks, such as the folder of the "
        "run that trained the model (default: nothing is retrieved).",
    ),
]
Overlap = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="With --truncation window: overlap of two windows in tokens (default: a quarter of "
        "the window).",
    ),
]


def _column_option(what: str) -> Any:  # noqa: ANN401
    return typer.Option(
        metavar="COLUMN",
        rich_help_panel=INPUT,
        help=f"Column of the {what}: name or 1-based number (default: auto-detected).",
    )


TextColumn = Annotated[str | None, _column_option("text")]
PairColumn = Annotated[str | None, _column_option("second text of a pair")]
TargetColumn = Annotated[str | None, _column_option("translation or summary")]
LabelColumn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        rich_help_panel=INPUT,
        help="Column of the label: name or 1-based number (default: auto-detected); repeated: "
        "columns of 0 and 1, one per label.",
    ),
]
LabelDelimiter = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        rich_help_panel=INPUT,
        help="Delimiter of several labels in the label column (default: auto-detected).",
    ),
]
TagColumn = Annotated[str | None, _column_option("tags")]
TagScheme = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=INPUT,
        help="Tag scheme of the data: IOB1, IOB2, BIOES or BMES (default: auto-detected).",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        rich_help_panel=INPUT,
        help="Skip rows that cannot be read, and print how many were skipped.",
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=GENERAL, help="Overwrite existing files and folders."),
]


def print_error(error: ClozeError) -> None:
    """Print the problem and its fix on standard error."""
    _print_label("error:", "red", error.problem)
    _print_label("fix:", "green", error.fix)


def show_warning(others: Callable[..., None]) -> Callable[..., None]:
    """A `showwarning` that prints the warnings of this package on one line.

    `others` shows those of other libraries.
    """

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,  # noqa: ANN401 - as the library has it
        line: str | None = None,
    ) -> None:
        if category.__module__.partition(".")[0] == "cloze":
            _print_label("warning:", "yellow", " ".join(str(message).split()))
        else:
            others(message, category, filename, lineno, file, line)

    return show


def _print_label(label: str, color: str, text: str) -> None:
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    shown = label if plain else typer.style(label, fg=color, bold=True)
    typer.echo(f"{shown} {escape_control_characters(text, keep=LINES)}", err=True)


def print_note(text: str) -> None:
    """Print a line on standard error, with escapes for control characters."""
    typer.echo(escape_control_characters(text, keep=LINES), err=True)


_FIXES = {
    errno.ENOSPC: "free space on the disk, or write to another one",
    errno.EDQUOT: "free space on the disk, or write to another one",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write to another disk",
    errno.EROFS: "write to another folder",
    errno.EACCES: "use another path, or change its permissions",
    errno.EPERM: "use another path, or change its permissions",
}


def describe_os_error(error: OSError) -> ClozeError:
    """Convert an error of the operating system to a `ClozeError`; it names the path if known."""
    if error.filename == STDOUT:
        discard_stdout()  # so that it is reported once
    problem = str(error.strerror or error)
    return InputError(
        problem if error.filename is None else f"{error.filename}: {problem}",
        fix=_FIXES.get(error.errno or 0, "use another path in an existing folder"),
    )


def wrap_stdout(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """The same stream as UTF-8, whose errors name standard output."""
    return io.TextIOWrapper(
        open_for_writing(stream.fileno(), name=STDOUT),
        # UTF-8 in any locale; file names that are not UTF-8 are escaped
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=stream.line_buffering or stream.write_through,
    )


def discard_stdout() -> None:
    """Discard buffered output: the reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Skipped:
    """Collects errors of rows: prints the first few, counts all."""

    SHOWN = 10

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: ClozeError) -> None:
        self.count += 1
        if self.count <= self.SHOWN:
            print_error(error)

    def print_count(self, *, skipped: bool = True) -> None:
        """Print how many there were, if any."""
        if self.count:
            what = "inputs could not be read" + (" and were skipped" if skipped else "")
            print_note(f"{self.count:,} {what}")


def print_skipped(errors: Iterable[ClozeError]) -> None:
    """Print the first errors of rows that were skipped, and their number."""
    skipped = Skipped()
    for error in errors:
        skipped(error)
    skipped.print_count()


def read_inputs(
    inputs: Sequence[str] | None,
    files: Sequence[str] | None = None,
    column: str | None = None,
    *,
    on_error: Literal["raise"] | Callable[[InputError], object] = "raise",
) -> "Iterator[Row]":
    """Texts from the arguments (`-` is standard input) and files; without any, from a pipe."""
    from cloze.data.sources import read_rows

    if not inputs and not files:
        if sys.stdin is None or sys.stdin.isatty():
            raise typer.BadParameter(
                "no text was given: write it after the model, use --file, or pipe in lines",
                param_hint="TEXT",
            )
        if _is_empty(sys.stdin):
            raise InputError(
                "no text was given, and standard input is empty",
                fix="write the text after the model, use --file, or pipe in lines",
            )
        inputs = ["-"]
    given = [
        read_rows("-", text_column=column, on_error=on_error)
        if text == "-"
        else iter([_make_row(text, number)])
        for number, text in enumerate(inputs or [], 1)
    ]
    _warn_of_files(inputs or ())
    return chain(*given, read_rows(list(files or []), text_column=column, on_error=on_error))


def _warn_of_files(inputs: Iterable[str]) -> None:
    """Warn if a text is the name of a file, which is read only with --file."""
    for text in inputs:
        if is_data_file(text):
            message = f"{text} is processed as a text; to read the file, use --file {text}"
            _print_label("warning:", "yellow", message)


def is_piped() -> bool:
    """Whether there is input in a pipe or a redirected file; nothing is consumed."""
    return sys.stdin is not None and not sys.stdin.isatty() and not _is_empty(sys.stdin)


def _is_empty(stream: Any) -> bool:  # noqa: ANN401
    """Whether a pipe or file has ended; nothing is consumed."""
    peek = getattr(getattr(stream, "buffer", None), "peek", None)
    return peek is not None and not peek(1)


def _make_row(text: str, number: int) -> "Row":
    from cloze.data.sources import Row

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"TEXT {number} is not UTF-8", fix="use a UTF-8 terminal, or a file with --file"
        ) from error
    return Row(text, ARGUMENT, number, is_document=True)


def check_svg_path(path: "Path | None", force: bool) -> None:
    """Reject, before any work is done, a path where no plot can be written."""
    from cloze.files import check_output_path

    if path is None:
        return
    if path.suffix.lower() != ".svg":
        raise InputError(f"{path}: plots are written as SVG", fix="use a name that ends in .svg")
    check_output_path(path, force, file=True)


def check_page_path(path: "Path | None", force: bool) -> None:
    """Reject, before any work is done, a path where no page can be written."""
    from cloze.files import check_output_path

    if path is None:
        return
    if path.suffix != ".html":
        raise InputError(f"{path}: a report is an HTML page", fix="use a name that ends in .html")
    check_output_path(path, force, file=True)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int, int | None], object]]:
    """A progress bar per stage on standard error, as a callback (stage, done, total)."""
    from cloze.progress import open_progress

    with open_progress(not quiet) as show:
        yield show or (lambda _stage, _done, _total: None)


@contextmanager
def explain_interrupt(message: Callable[[], str]) -> Iterator[None]:
    """Say what has become of the work when Ctrl-C interrupts it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or message()) from error
