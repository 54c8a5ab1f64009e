"""`cloze embed`: embeddings of texts."""

import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Force,
    Json,
    ModelFolder,
    Overlap,
    Quiet,
    SkipBad,
    TextColumn,
    Texts,
    Truncation,
    print_note,
    progress,
    read_inputs,
)
from cloze.cli.format import print_json
from cloze.cli.format_vectors import VectorLines, print_json_records, print_vectors
from cloze.cli.outcomes import Outcomes, add_location
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.sources import Row
    from cloze.data.vector_files import EmbeddingRecord, RecordWriter

TERMINATED = 143  # as shells report SIGTERM


def embed(
    model: ModelFolder,
    texts: Texts = None,
    *,
    layers: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="Layers to use: embeddings, second-to-last, last, sum-last-4, concat-last-4, "
            "sum-all, layer numbers to concatenate, such as 0,-1, or layers with weights to add, "
            "such as 0:0.2,1:0.5,2:0.3.",
        ),
    ] = "last",
    pooling: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="Pooling over the tokens: cls, mean, max, or none for one vector per token "
            "(default: the model's setting, else mean).",
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="L2-normalize the vectors (default: the model's setting, else off).",
        ),
    ] = None,
    truncation: Truncation = None,
    overlap: Overlap = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the vectors to this .npy, .jsonl or .parquet file. A text that fails keeps "
            "its place: a row of NaN, or an object with its error.",
        ),
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of tokens in a batch.")
    ] = 2048,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute embeddings of texts or of tokens.

    On a terminal the first numbers of each vector are shown. In a pipe each text is one line of
    tab-separated numbers (nan for a text that failed). With --pooling none each token is one line:
    number of the text, token, numbers.
    """
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    waiting: deque[Row | InputError] = deque()  # rows and errors of rows, not yet written
    on_error: Any = waiting.append if skip_bad else "raise"
    inputs = read_inputs(texts, files, text_column, on_error=on_error)

    from cloze.checkpoint.load import load
    from cloze.data.vector_files import check_vector_format, open_vector_file
    from cloze.files import check_output_path

    by_token = pooling == "none"
    if out is not None:
        check_vector_format(check_output_path(out, force, file=True), by_token=by_token)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.embed import embed_stream

    write: RecordWriter = print_vectors if sys.stdout.isatty() else VectorLines(by_token=by_token)
    found: list[EmbeddingRecord] = []  # on a terminal, where they and the bar would be mixed
    with ExitStack() as stack:
        stack.enter_context(_exit_on_sigterm())
        show = stack.enter_context(progress(quiet))
        if out is not None:
            write = stack.enter_context(open_vector_file(out, by_token=by_token))
        elif as_json:
            write = print_json_records
        stream = embed_stream(
            opened,
            _queue_texts(inputs, waiting),
            pooling=pooling,
            layers=layers,
            normalize=normalize,
            truncation=truncation,
            overlap=overlap,
            batch_tokens=batch_tokens,
            progress=show,
        )
        consume = found.extend if out is None and sys.stdout.isatty() else write
        for records in _take_batches(stream, waiting, outcomes, keep_bad=out is not None):
            consume(records)
    if found:
        write(found)
    if out and as_json:
        print_json(outcomes.summary(out))
    if out and not quiet:
        done = f"{outcomes.num_succeeded:,} of {outcomes.count:,} texts embedded"
        print_note(f"{done}: {out}")
    outcomes.finish(f"truncated to {opened.max_length:,} tokens")


def _take_batches(
    stream: "Iterable[Sequence[EmbeddingRecord]]",
    waiting: "deque[Row | InputError]",
    outcomes: Outcomes,
    *,
    keep_bad: bool,
) -> "Iterator[list[EmbeddingRecord]]":
    for records in chain(stream, [[]]):  # the last one for errors at the end
        if taken := list(_take_records(records, waiting, outcomes, keep_bad=keep_bad)):
            yield taken


def _take_records(
    records: "Iterable[EmbeddingRecord]",
    waiting: "deque[Row | InputError]",
    outcomes: Outcomes,
    *,
    keep_bad: bool,
) -> "Iterator[EmbeddingRecord]":
    """Count records, and those of rows between them that could not be read.

    With `keep_bad` rows that failed keep their place in the output even if they are skipped.
    """
    from cloze.data.vector_files import EmbeddingRecord

    remaining = iter(records)
    while waiting:
        row = waiting[0]
        unread = row if isinstance(row, InputError) else None
        record = EmbeddingRecord(text=None, error=unread) if unread else next(remaining, None)
        if record is None:  # the row is not yet embedded
            return
        waiting.popleft()
        error = record.error and add_location(record.error, row)
        if outcomes.add(error, record.truncated_chars) or keep_bad:
            yield record


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that no partial file remains."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _queue_texts(inputs: "Iterable[Row]", waiting: "deque[Row | InputError]") -> Iterator[str]:
    for row in inputs:
        waiting.append(row)
        yield row.text
