"""`cloze classify`: the label of texts or pairs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

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
    read_inputs,
)
from cloze.cli.outcomes import Found, Outcomes, format_probability, outcomes_of, print_lines
from cloze.errors import InputError

if TYPE_CHECKING:
    from cloze.data.labelled.examples import TextExample
    from cloze.tasks.classify import Classification


def classify(
    model: ModelFolder,
    texts: Texts = None,
    *,
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, the same for every TEXT.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Labels for each text.")] = 1,
    policy: Policy = None,
    stride: Stride = None,
    files: Files = None,
    column: Column = None,
    pair_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column that is the second text.")
    ] = None,
    skip_bad: SkipBad = False,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell the label of texts, or of pairs of texts."""
    if pair is not None and pair_column is not None:
        raise typer.BadParameter(
            "the second text comes from --pair or from --pair-column, not both"
        )
    if pair_column is not None and (texts or not files):
        raise typer.BadParameter("it is a column of a --file", param_hint="--pair-column")
    numbered = files and not texts and column is not None and column.isdigit()
    told = Outcomes("texts", skip_bad=skip_bad)
    examples = (
        _table(files or [], column, pair_column, pair, told)
        if numbered or pair_column is not None
        else _texts(texts, files, column, pair, told)
    )

    from cloze.checkpoint.load import load
    from cloze.checkpoint.task import with_policy
    from cloze.tasks.classify import predict
    from cloze.tasks.inference import resolve_task

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    task = with_policy(resolve_task("classify", opened), policy, stride)
    number = opened.config.problem_type == "number"
    verb = partial(predict, opened, task=task)
    how = f"cut to {opened.limit:,} pieces"
    with outcomes_of(verb, examples, told, cut="truncated", how=how, quiet=quiet) as found:
        if as_json:
            print_lines(found, ("text", "pair"), lambda _, one: _plain(one, top))
        else:
            columns = ("text", "number") if number else ("text", "label", "probability")
            print_table(columns, _rows(found, top, number))


def _texts(
    texts: list[str] | None,
    files: list[str] | None,
    column: str | None,
    pair: str | None,
    told: Outcomes,
) -> "Iterator[TextExample]":
    from cloze.data.labelled.examples import Origin, TextExample

    return (
        TextExample(text=row.text, pair=pair, origin=Origin(file=row.file, line=row.line))
        for row in read_inputs(texts, files, column, on_error=told.on_error)
    )


def _table(
    files: list[str], column: str | None, pair_column: str | None, pair: str | None, told: Outcomes
) -> "Iterator[TextExample]":
    """Columns by name or by number, as training reads them."""
    from cloze.data.labelled.tables import read_text_examples

    examples = read_text_examples(
        list(files), text=column, pair=pair_column, label=False, on_error=told.on_error
    )
    return (replace(one, pair=one.pair if pair is None else pair) for one in examples)


def _plain(found: "Classification", top: int) -> dict[str, object]:
    best = list(found.scores.items())[:top]
    return {
        "labels": [{"label": name, "score": score} for name, score in best],
        "truncated": found.truncated,
    }


def _rows(found: Found, top: int, number: bool) -> Iterator[tuple[object, ...]]:
    for example, one in found:
        text = example.text if example.pair is None else f"{example.text} | {example.pair}"
        if isinstance(one, InputError):
            yield (text, "") if number else (text, "", "")
        elif number:
            yield text, f"{one.score:.4f}"
        else:
            for label, score in list(one.scores.items())[:top]:
                yield text, label, format_probability(score)
