"""`cloze summarize`: summaries of texts."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Quiet,
    SkipBad,
    TextColumn,
    Texts,
    read_inputs,
)
from cloze.cli.format import print_json_lines, print_summarize
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.data.sources import Row


def summarize(
    model: ModelFolder,
    texts: Texts = None,
    *,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Maximum number of tokens of a summary (default: of those it was trained on).",
        ),
    ] = None,
    truncation: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="What to do with texts that are too long: head, tail or head+tail keep that part; "
            "error rejects the text (default: head).",
        ),
    ] = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum of source tokens × beam size in a batch (default: 4096; on a GPU "
            "65,536).",
        ),
    ] = None,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
    **options: Any,  # noqa: ANN401
) -> None:
    """Summarize texts: one summary per line."""
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    inputs = read_inputs(texts, files, text_column, on_error=outcomes.on_error)

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.source_to_target import make_translator, open_target_model
    from cloze.tasks.summarize import summarize

    limit = make_translator(open_target_model(opened, "summarize")).max_source_length

    def summarize_all(rows: "Sequence[Row]", **shown: Any) -> "Sequence[Any]":  # noqa: ANN401
        return summarize(
            opened,
            [row.text for row in rows],
            **options,
            max_length=max_length,
            truncation=truncation,
            batch_tokens=batch_tokens,
            **shown,
        )

    several = options.get("n_best", 1) > 1
    how = f"truncated to {limit:,} tokens"
    fields = {"source": "text"}
    with outcomes.predict(summarize_all, inputs, fields, how=how, quiet=quiet) as results:
        if as_json:
            print_json_lines(results)
        else:
            print_summarize(results, table=several)
