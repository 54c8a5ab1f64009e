"""`cloze embed`: vectors of texts."""

import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.common import (
    Column,
    Device,
    Dtype,
    Files,
    Force,
    Json,
    ModelFolder,
    Policy,
    Quiet,
    SkipBad,
    Stride,
    Texts,
    print_json,
    print_table,
    printable,
    progress,
    read_inputs,
)
from cloze.cli.outcomes import Outcomes
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.sources import Row
    from cloze.data.vector_files import EmbeddingRecord, RecordWriter, Vectors

TERMINATED = 143  # as shells report SIGTERM
SHOWN = 6  # numbers of a vector on the screen


def embed(
    model: ModelFolder,
    texts: Texts = None,
    *,
    layers: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="embeddings, second-to-last, last, sum-last-4, concat-last-4, sum-all, "
            "or numbers like 0,-1 to lay side by side.",
        ),
    ] = "last",
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE", help="cls, mean, max, or none: every token. [folder's, mean]"
        ),
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="To length 1. [folder's, no]")
    ] = None,
    policy: Policy = None,
    stride: Stride = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write .npy, .jsonl or .parquet.")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(metavar="N", help="Tokens in a batch.")] = 2048,
    files: Files = None,
    column: Column = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Turn texts, or their tokens, into vectors.

    A terminal shows the first numbers. In a pipe or a file each text is a line
    of all its numbers, parted by tabs (nan where it failed); with --pooling none
    each token is one: the number of its text, the piece, the numbers.
    """
    told = Outcomes("texts", skip_bad=skip_bad)
    inputs = read_inputs(texts, files, column, on_error=told.on_error)

    from cloze.checkpoint.load import load
    from cloze.data.vector_files import check_vector_format, open_vector_file
    from cloze.files import check_output_path
    from cloze.tasks.embed import embed_stream

    by_token = pooling == "none"
    if out is not None:
        check_vector_format(check_output_path(out, force, file=True), by_token=by_token)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    waiting: deque[Row] = deque()  # read, and not yet embedded
    embedded = 0
    with ExitStack() as stack:
        stack.enter_context(_tidy())
        show = stack.enter_context(progress(quiet))
        print_records: RecordWriter = _print if sys.stdout.isatty() else _Lines(by_token=by_token)
        if as_json:
            print_records = _print_json
        write = (
            stack.enter_context(open_vector_file(out, by_token=by_token)) if out else print_records
        )
        for records in embed_stream(
            opened,
            _texts(inputs, waiting),
            pooling=pooling,
            layers=layers,
            normalize=normalize,
            truncation=policy,
            overlap=stride,
            batch_tokens=batch_tokens,
            progress=show,
        ):
            shown = [record for record in records if _told(record, waiting.popleft(), told)]
            if shown:
                write(shown)
            embedded += sum(record.error is None for record in shown)
    if out and as_json:
        failed = told.skipped.count
        print_json({"out": str(out), "count": embedded, "truncated": told.cut, "failed": failed})
    if out and not quiet:
        typer.echo(f"{embedded:,} of {told.count:,} texts embedded: {out}", err=True)
    told.tell(f"cut to {opened.limit:,} pieces")


def _told(record: "EmbeddingRecord", row: "Row", told: Outcomes) -> bool:
    if record.error is None:
        return told.shown(record, record.truncated)
    where = f"{row.file}:{row.line}: {record.error.problem}"
    return told.shown(InputError(where, fix=record.error.fix))


@contextmanager
def _tidy() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does: no half of a file stays behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _texts(inputs: "Iterable[Row]", waiting: "deque[Row]") -> Iterator[str]:
    for row in inputs:
        waiting.append(row)
        yield row.text


def _print_json(records: "Sequence[EmbeddingRecord]") -> None:
    for record in records:
        print_json(record.to_dict())


class _Lines:
    """Prints vectors for other programs: numbers and tabs, as exact as they are."""

    def __init__(self, *, by_token: bool) -> None:
        self._by_token = by_token  # then a text that failed has no lines, and a number
        self._width = 1
        self._texts = 0

    def __call__(self, records: "Sequence[EmbeddingRecord]") -> None:
        known = (len(one.vectors) for one in records if one.vectors is not None)
        self._width = next(known, self._width)
        for record in records:
            self._texts += 1
            if record.vectors is not None and record.encoding is not None:
                for piece, vector in zip(record.encoding.tokens, record.vectors, strict=True):
                    print(self._texts, printable(piece), *vector, sep="\t")
            elif record.vectors is not None:
                print(*record.vectors, sep="\t")
            elif not self._by_token:
                print(*["nan"] * self._width, sep="\t")


def _print(records: "Sequence[EmbeddingRecord]") -> None:
    columns = ("width", "length", "numbers")
    texts = [
        (record.text, *_numbers(record.vectors))
        for record in records
        if record.vectors is not None and record.encoding is None
    ]
    if texts:
        print_table(("text", *columns), texts)
    for record in records:
        if record.vectors is not None and record.encoding is not None:
            tokens = zip(record.encoding.tokens, record.vectors, strict=True)
            rows = [(piece, *_numbers(vector)) for piece, vector in tokens]
            print_table(("piece", *columns), rows, title=record.text)


def _numbers(vector: "Vectors") -> tuple[int, str, str]:
    length = float((vector**2).sum() ** 0.5)
    more = " …" if len(vector) > SHOWN else ""
    return len(vector), f"{length:.3f}", " ".join(f"{x:+.3f}" for x in vector[:SHOWN]) + more
