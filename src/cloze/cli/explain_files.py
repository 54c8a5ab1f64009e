"""`cloze explain VIEW MODEL --file PATH --json`: the values of a view for many texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from cloze.cli.common import read_inputs
from cloze.cli.format import print_json_lines
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from cloze.data.sources import Row


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Where texts are read from."""

    files: list[str]
    text_column: str | None
    skip_bad: bool


def take_file_options(options: dict[str, Any], given: Mapping[str, Any]) -> TextFiles | None:
    """Remove the options of files from those of a view; None if there is a text instead."""
    found = TextFiles(
        files=options.pop("files") or [],
        text_column=options.pop("text_column"),
        skip_bad=options.pop("skip_bad"),
    )
    if given["text"] is not None and found.files:
        raise typer.BadParameter("a text and --file cannot be combined: give one of them")
    if given["text"] is not None:
        return None
    if not found.files:
        raise typer.BadParameter("give a text, or name a file with --file", param_hint="TEXT")
    outputs = ("html", "svg", "png", "against", "against_text")
    named = next((name for name in outputs if given[name] is not None), None)
    if named or not given["as_json"]:
        raise typer.BadParameter(
            "the values of many texts are printed as JSON lines: add --json"
            + (f", and leave out --{named.replace('_', '-')}" if named else ""),
            param_hint="--file",
        )
    return found


def print_views(
    view: str, options: dict[str, Any], source: TextFiles, given: Mapping[str, Any]
) -> None:
    """Print the values of a view for every text of files, one JSON object per line."""
    outcomes = Outcomes("texts", skip_bad=source.skip_bad)
    rows = read_inputs(None, source.files, source.text_column, on_error=outcomes.on_error)

    from cloze.checkpoint.load import load

    opened = load(
        given["model"], device=given["device"], dtype=given["dtype"], quiet=given["quiet"]
    )

    from cloze.tasks.explain import find_view

    function: Any = find_view(view)
    pair = options.pop("pair", None)

    def compute(some: "Sequence[Row]", **more: Any) -> Sequence[Any]:  # noqa: ANN401
        pairs = None if pair is None else [pair] * len(some)
        return function(opened, [row.text for row in some], pairs, **options, **more)

    how = f"truncated to {opened.max_length:,} tokens"
    with outcomes.predict(compute, rows, ["text"], how=how, quiet=given["quiet"]) as results:
        print_json_lines(results)
