"""`cloze tokenize`: the tokens of texts."""

from typing import Annotated

import typer

from cloze.cli.common import Files, Json, SkipBad, Skipped, TextColumn, Texts, read_inputs
from cloze.cli.format import print_json, print_tokenize


def tokenize(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Model folder, name of a built-in model, or tokenizer.json or vocab.txt file.",
        ),
    ],
    texts: Texts = None,
    *,
    pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Second text, which is paired with every TEXT."),
    ] = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Show the tokens of texts with their ids, character offsets and word numbers."""
    skipped = Skipped()
    inputs = read_inputs(texts, files, text_column, on_error=skipped if skip_bad else "raise")

    from cloze.tasks.tokenize import open_tokenizer, tokenize

    tokenizer = open_tokenizer(model)
    results = ((row.text, tokenize(tokenizer, row.text, pair)) for row in inputs)
    if as_json:
        for text, alignment in results:
            print_json({"text": text, "pair": pair, **alignment.to_dict()})
    else:
        print_tokenize(results)
    skipped.print_count()
