"""`cloze tag`: spans of texts."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.common import (
    Column,
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Policy,
    Quiet,
    SkipBad,
    Stride,
    Texts,
    print_table,
    printable,
    read_inputs,
)
from cloze.cli.outcomes import Found, Outcomes, format_probability, outcomes_of, print_lines
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.sources import Row
    from cloze.tasks.tag import TagResult

COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def tag(
    model: ModelFolder,
    texts: Texts = None,
    *,
    aggregation: Annotated[
        str, typer.Option(metavar="CHOICE", help="none, simple, first, average or max.")
    ] = "first",
    policy: Policy = None,
    stride: Stride = None,
    files: Files = None,
    column: Column = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the spans of texts: names, places, whatever the model has learned."""
    told = Outcomes("texts", skip_bad=skip_bad)
    inputs = read_inputs(texts, files, column, on_error=told.on_error)

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import with_policy
    from cloze.data.labelled.examples import Origin
    from cloze.tasks.inference import resolve_task
    from cloze.tasks.tag import make_examples, predict

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    task = with_policy(resolve_task("tag", opened), policy, stride)

    def verb(rows: "Sequence[Row]", **options: Any) -> "Sequence[TagResult]":  # noqa: ANN401
        origins = [Origin(file=row.file, line=row.line) for row in rows]
        examples = make_examples(opened, [row.text for row in rows], origins)
        return predict(opened, examples, task=task, aggregation=aggregation, **options)

    how = f"cut to {opened.limit:,} pieces"
    with outcomes_of(verb, inputs, told, cut="untagged", how=how, quiet=quiet) as found:
        if as_json:
            print_lines(found, ("text",), lambda _, one: _plain(one))
        elif sys.stdout.isatty():
            _colour(found, opened.labels)
        else:
            print_table(("text", "start", "end", "label", "probability", "span"), _rows(found))


def _plain(tagged: "TagResult") -> dict[str, object]:
    spans = [dataclasses.asdict(span) for span in tagged.spans]
    return {"spans": spans, "untagged": tagged.untagged}


def _rows(found: Found) -> Iterator[tuple[object, ...]]:
    for number, (_, tagged) in enumerate(found, 1):
        for span in [] if isinstance(tagged, InputError) else tagged.spans:
            yield (
                number,
                span.start,
                span.end,
                span.label,
                format_probability(span.score),
                span.text,
            )


def _colour(found: Found, labels: Sequence[str]) -> None:
    """Each text with its spans marked, a colour for each kind."""
    from rich.console import Console
    from rich.text import Text

    kinds = list(dict.fromkeys(label.split("-", 1)[-1] for label in labels))
    console = Console(highlight=False)
    for _, tagged in found:
        if isinstance(tagged, InputError):
            continue
        line, end = Text(), 0
        for span in tagged.spans:
            # a label has its letter only where nothing was joined; geo-loc is one without
            kind = span.label if span.label in kinds else span.label.split("-", 1)[-1]
            colour = COLOURS[kinds.index(kind) % len(COLOURS)]
            line.append(printable(tagged.text[end : span.start]))
            line.append(printable(span.text), f"bold {colour}")
            line.append(f" {printable(span.label)} {span.score:.2f}", f"dim {colour}")
            end = span.end
        line.append(printable(tagged.text[end:]))
        console.print(line, soft_wrap=True)
