"""`cloze embed`: embeddings of texts."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Files,
    ModelFolder,
    Overlap,
    SkipBad,
    TextColumn,
    Texts,
    Truncation,
    progress,
    read_inputs,
)
from cloze.cli.format_vectors import VectorLines, print_json_records, print_vectors
from cloze.cli.images import Images, embed_image_files, open_image_files
from cloze.cli.outcomes import Outcomes
from cloze.cli.processing import OUTPUT, ProcessingOptions, exit_on_sigterm
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.embedding_records import EmbeddingRecord
    from cloze.data.result_files import RecordWriter
    from cloze.data.sources import Row


@dataclass(frozen=True, kw_only=True)
class VectorOptions(ProcessingOptions):
    """The options of output, where vectors may also be written to an .npy file."""

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=OUTPUT,
            help="Write the vectors to this .npy, .jsonl or .parquet file; or to a folder (a name "
            "without an ending), with a parquet file per block: if the command is interrupted, the "
            "same command continues it. A text that fails keeps its place: a row of NaN, or its "
            "error.",
        ),
    ] = None


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
    batch_tokens: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of tokens in a batch.")
    ] = 2048,
    images: Images = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    processing: VectorOptions,
) -> None:
    """Compute embeddings of texts or of tokens; of images with --images and a CLIP.

    On a terminal the first numbers of each vector are shown. In a pipe each text is one line of
    tab-separated numbers (nan for a text that failed). With --pooling none each token is one line:
    number of the text, token, numbers.
    """
    if images:
        given = {"pooling": pooling, "layers": layers != "last", "overlap": overlap, "file": files}
        found_images = open_image_files(images, texts, processing, **given)
        embed_image_files(model, found_images, processing, skip_bad, normalize=bool(normalize))
        return
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    options: dict[str, Any] = {
        "pooling": pooling,
        "layers": layers,
        "normalize": normalize,
        "truncation": truncation,
        "overlap": overlap,
        "batch_tokens": batch_tokens,
    }
    read = partial(read_inputs, texts, files, text_column)
    if processing.write_files("embed", model, read, outcomes, options):
        return
    waiting: deque[Row | InputError] = deque()  # rows and errors of rows, not yet written
    on_error: Any = waiting.append if skip_bad else "raise"
    inputs = read(on_error=on_error)
    opened = processing.load_model(model)

    from cloze.tasks.embed import embed_stream

    by_token = pooling == "none"
    write: RecordWriter = print_vectors if sys.stdout.isatty() else VectorLines(by_token=by_token)
    if processing.as_json:
        write = print_json_records
    found: list[EmbeddingRecord] = []  # on a terminal, where they and the bar would be mixed
    with exit_on_sigterm(), progress(processing.quiet) as show:
        stream = embed_stream(opened, _queue_texts(inputs, waiting), progress=show, **options)
        consume = found.extend if sys.stdout.isatty() else write
        for records in _take_batches(stream, waiting, outcomes):
            consume(records)
    if found:
        write(found)
    outcomes.finish(f"truncated to {opened.max_length:,} tokens")


def _take_batches(
    stream: "Iterable[Sequence[EmbeddingRecord]]",
    waiting: "deque[Row | InputError]",
    outcomes: Outcomes,
) -> "Iterator[list[EmbeddingRecord]]":
    for records in chain(stream, [[]]):  # the last one for errors at the end
        if taken := list(_take_records(records, waiting, outcomes)):
            yield taken


def _take_records(
    records: "Iterable[EmbeddingRecord]",
    waiting: "deque[Row | InputError]",
    outcomes: Outcomes,
) -> "Iterator[EmbeddingRecord]":
    """Count records, and those of rows between them that could not be read."""
    from cloze.data.embedding_records import EmbeddingRecord
    from cloze.tasks.inputs import add_location

    remaining = iter(records)
    while waiting:
        row = waiting[0]
        unread = row if isinstance(row, InputError) else None
        record = EmbeddingRecord(text=None, error=unread) if unread else next(remaining, None)
        if record is None:  # the row is not yet embedded
            return
        waiting.popleft()
        error = record.error and add_location(record.error, row)
        if outcomes.add(error, record.truncated_chars):
            yield record


def _queue_texts(inputs: "Iterable[Row]", waiting: "deque[Row | InputError]") -> Iterator[str]:
    for row in inputs:
        waiting.append(row)
        yield row.text
