"""The options of `cloze explain saliency`."""

from typing import Annotated

import typer

from cloze.cli.common import Files, Seed, SkipBad, TextColumn


def saliency(
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text (or use --file).")
    ] = None,
    *,
    pair: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Second text of a pair, or context of a question."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What is explained: a word for [MASK], a label, WORD or WORD=TAG, start, end or a "
            "part of the context, words that continue the text, a word of the translation, an "
            "option; may be repeated (default: what the model predicts).",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="gradient (gradient × input), integrated (integrated gradients) or leave-one-out.",
        ),
    ] = "gradient",
    signed: Annotated[
        bool, typer.Option("--signed", help="Show which tokens speak for and against the output.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            help="Embedding in place of a removed token: mask, pad or zero (default: mask if the "
            "model has it, else zero).",
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(metavar="N", help="Number of steps of integrated gradients.")
    ] = 50,
    drop: Annotated[
        bool, typer.Option("--drop", help="Leave tokens out, instead of replacing their embedding.")
    ] = False,
    new_tokens: Annotated[
        int,
        typer.Option(metavar="N", help="Maximum number of tokens that a language model generates."),
    ] = 10,
    target_text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Translation to explain (default: the greedy one)."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="TEXT", help="Option of a multiple choice; repeat it for each."
        ),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Question about the text that the options answer."),
    ] = None,
    faithfulness: Annotated[
        bool,
        typer.Option(
            "--faithfulness",
            help="Add deletion and insertion curves, compared with random orders.",
        ),
    ] = False,
    random_orders: Annotated[
        int, typer.Option(metavar="N", help="Number of random orders of the curves.")
    ] = 10,
    seed: Seed = 0,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
) -> None:
    """Show how much each token of a text contributes to an output.

    With --file, all texts of a file are computed in batches, and --json prints one object for each.
    """
