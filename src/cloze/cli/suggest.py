"""`cloze suggest`: the most probable next words."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    PromptTruncation,
    Quiet,
    SkipBad,
    TextColumn,
    Texts,
    read_inputs,
)
from cloze.cli.format import print_json_lines, print_suggest
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.data.sources import Row


def suggest(
    model: ModelFolder,
    texts: Texts = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Number of words per text.")] = 10,
    truncation: PromptTruncation = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the most probable next words of a text, with their probabilities."""
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    inputs = read_inputs(texts, files, text_column, on_error=outcomes.on_error)

    from cloze.checkpoint.load import load
    from cloze.tasks.inputs import open_language_model
    from cloze.tasks.suggest import suggest

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    language_model = open_language_model(opened, "suggest")

    def suggest_all(rows: "Sequence[Row]", **options: Any) -> "Sequence[Any]":  # noqa: ANN401
        some = [row.text for row in rows]
        return suggest(language_model, some, top=top, truncation=truncation, **options)

    with outcomes.predict(suggest_all, inputs, ["text"], quiet=quiet) as results:
        (print_json_lines if as_json else print_suggest)(results)
