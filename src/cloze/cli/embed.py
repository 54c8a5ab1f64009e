"""`cloze embed`: embeddings of texts."""

import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from cloze.cli.format import VectorLines, print_json, print_json_records, print_vectors
from cloze.cli.outcomes import Outcomes
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
            "sum-all, or layer numbers to concatenate, such as 0,-1.",
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
            metavar="FILE", help="Write the vectors to this .npy, .jsonl or .parquet file."
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
    inputs = read_inputs(texts, files, text_column, on_error=outcomes.on_error)

    from cloze.checkpoint.load import load
    from cloze.data.vector_files import check_vector_format, open_vector_file
    from cloze.files import check_output_path

    by_token = pooling == "none"
    if out is not None:
        check_vector_format(check_output_path(out, force, file=True), by_token=by_token)
    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.embed import embed_stream

    waiting: deque[Row] = deque()  # read, and not yet embedded
    write: RecordWriter = print_vectors if sys.stdout.isatty() else VectorLines(by_token=by_token)
    with ExitStack() as stack:
        stack.enter_context(_exit_on_sigterm())
        show = stack.enter_context(progress(quiet))
        if out is not None:
            write = stack.enter_context(open_vector_file(out, by_token=by_token))
        elif as_json:
            write = print_json_records
        for records in embed_stream(
            opened,
            _queue_texts(inputs, waiting),
            pooling=pooling,
            layers=layers,
            normalize=normalize,
            truncation=truncation,
            overlap=overlap,
            batch_tokens=batch_tokens,
            progress=show,
        ):
            shown = [one for one in records if _count_record(one, waiting.popleft(), outcomes)]
            if shown:
                write(shown)
    if out and as_json:
        print_json(outcomes.summary(out))
    if out and not quiet:
        done = f"{outcomes.num_succeeded:,} of {outcomes.count:,} texts embedded"
        print_note(f"{done}: {out}")
    outcomes.finish(f"truncated to {opened.max_length:,} tokens")


def _count_record(record: "EmbeddingRecord", row: "Row", outcomes: Outcomes) -> bool:
    if record.error is None:
        return outcomes.add(truncated=record.truncated)
    where = f"{row.file}:{row.line}: {record.error.problem}"
    return outcomes.add(InputError(where, fix=record.error.fix))


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as Ctrl-C does, so that no partial file remains."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _queue_texts(inputs: "Iterable[Row]", waiting: "deque[Row]") -> Iterator[str]:
    for row in inputs:
        waiting.append(row)
        yield row.text
