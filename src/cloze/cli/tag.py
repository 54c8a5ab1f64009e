"""`cloze tag`: token classification, such as named-entity recognition."""

from functools import partial
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
    read_inputs,
)
from cloze.cli.format import print_json_lines, print_tag
from cloze.cli.outcomes import Outcomes
from cloze.cli.processing import (
    Address,
    BlockRows,
    Engine,
    Out,
    Workers,
    check_processing,
    process_to_files,
    read_with_errors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.data.sources import Row


def tag(
    model: ModelFolder,
    texts: Texts = None,
    *,
    aggregation: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="Tag of a word with several tokens: that of the first token (first), of the mean "
            "probabilities (average) or of the most confident token (max); simple merges tokens "
            "instead of words into spans, none prints every token.",
        ),
    ] = "first",
    truncation: Truncation = None,
    overlap: Overlap = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    out: Out = None,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    block_rows: BlockRows = None,
    force: Force = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find named entities or other tagged spans in texts, with character offsets."""
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    check_processing(out, engine, address, workers, block_rows)
    read = partial(read_inputs, texts, files, text_column)
    if out is not None:
        process_to_files(
            "tag",
            model,
            read_with_errors(read, skip_bad=skip_bad),
            out,
            outcomes,
            {"aggregation": aggregation, "truncation": truncation, "overlap": overlap},
            engine=engine,
            address=address,
            workers=workers,
            block_rows=block_rows,
            device=device,
            dtype=dtype,
            force=force,
            as_json=as_json,
            quiet=quiet,
        )
        return
    inputs = read(on_error=outcomes.on_error)

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import override_truncation
    from cloze.data.labelled.examples import Origin

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.inference import resolve_task
    from cloze.tasks.tag import make_examples, predict

    task = override_truncation(resolve_task("tag", opened), truncation, overlap)

    def tag_all(rows: "Sequence[Row]", **options: Any) -> "Sequence[Any]":  # noqa: ANN401
        origins = [Origin(file=row.file, line=row.line) for row in rows]
        examples = make_examples(opened, [row.text for row in rows], origins, task=task)
        return predict(opened, examples, task=task, aggregation=aggregation, **options)

    how = f"truncated to {opened.max_length:,} tokens"
    show = partial(print_tag, labels=opened.labels)
    with outcomes.predict(tag_all, inputs, ["text"], how=how, quiet=quiet) as results:
        (print_json_lines if as_json else show)(results)
