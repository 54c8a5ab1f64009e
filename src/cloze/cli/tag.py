"""`cloze tag`: token classification, such as named-entity recognition."""

from functools import partial
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
    read_inputs,
)
from cloze.cli.format import print_json_lines, print_tag
from cloze.cli.outcomes import Outcomes
from cloze.cli.processing import ProcessingOptions

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
    processing: ProcessingOptions,
) -> None:
    """Find named entities or other tagged spans in texts, with character offsets."""
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    read = partial(read_inputs, texts, files, text_column)
    written = {"aggregation": aggregation, "truncation": truncation, "overlap": overlap}
    if processing.write_files("tag", model, read, outcomes, written):
        return
    inputs = read(on_error=outcomes.on_error)

    from cloze.checkpoint.task import override_truncation
    from cloze.data.labelled.examples import Origin

    opened = processing.load_model(model)

    from cloze.tasks.inference import resolve_task
    from cloze.tasks.tag import make_examples, predict

    task = override_truncation(resolve_task("tag", opened), truncation, overlap)

    def tag_all(rows: "Sequence[Row]", **options: Any) -> "Sequence[Any]":  # noqa: ANN401
        origins = [Origin(file=row.file, line=row.line) for row in rows]
        examples = make_examples(opened, [row.text for row in rows], origins, task=task)
        return predict(opened, examples, task=task, aggregation=aggregation, **options)

    how = f"truncated to {opened.max_length:,} tokens"
    show = partial(print_tag, labels=opened.labels)
    with outcomes.predict(tag_all, inputs, ["text"], how=how, quiet=processing.quiet) as results:
        (print_json_lines if processing.as_json else show)(results)
