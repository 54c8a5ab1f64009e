"""`cloze fill`: predict the masked tokens of texts."""

from functools import partial
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
from cloze.cli.format import print_fill, print_joint, print_json_lines
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.data.sources import Row


def fill(
    model: ModelFolder,
    texts: Texts = None,
    *,
    top: Annotated[int, typer.Option(metavar="N", help="Number of words to print per mask.")] = 5,
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS", help="Score only these comma-separated words (default: all words)."
        ),
    ] = None,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Fill all masks of a text together, by beam search, and print the best completed "
            "texts.",
        ),
    ] = False,
    beam_size: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --joint: number of hypotheses (default 8); 1 is greedy."
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="With --joint: which mask is filled next: confidence (the one whose best word is "
            "most probable) or left-to-right (default confidence).",
        ),
    ] = None,
    truncation: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="What to do with texts that are too long: window reads the text around the "
            "masks, error rejects the text (default: window).",
        ),
    ] = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the most probable words for each [MASK] of a text.

    A text that is longer than the model's maximum length is cropped around its masks. By default
    each mask is predicted while the others stay masked; --joint fills them together.
    """
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    inputs = read_inputs(texts, files, text_column, on_error=outcomes.on_error)

    from cloze.checkpoint.load import load

    opened = load(model, device=device, dtype=dtype, quiet=quiet)

    from cloze.tasks.fill import check_fill, fill

    words = None
    if candidates is not None:
        words = [word.strip() for word in candidates.split(",") if word.strip()]
    check_fill(opened, top=top, candidates=words)
    run: Any = partial(
        fill,
        opened,
        top=top,
        candidates=words,
        joint=joint,
        beam_size=beam_size,
        order=order,
        truncation=truncation,
        skip_blank=True,
    )

    def fill_all(rows: "Sequence[Row]", **options: Any) -> "Sequence[Any]":  # noqa: ANN401
        return run([row.text for row in rows], **options)

    how = f"cropped to {opened.max_length:,} tokens around their masks"
    with outcomes.predict(fill_all, inputs, ["text"], how=how, quiet=quiet) as results:
        show = print_joint if joint else print_fill
        (print_json_lines if as_json else show)(results)
