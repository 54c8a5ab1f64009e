"""`cloze score`: log-probabilities of texts, accuracy on minimal pairs."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cloze.cli.common import (
    Database,
    Device,
    Dtype,
    Files,
    Json,
    ModelFolder,
    Quiet,
    Seed,
    SkipBad,
    TextColumn,
    Texts,
    progress,
    read_inputs,
)
from cloze.cli.format import print_json, print_json_lines
from cloze.cli.format_evaluation import print_pair_scores, print_text_scores
from cloze.cli.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloze.checkpoint.model import Model
    from cloze.data.sources import Row


def score(
    model: ModelFolder,
    texts: Texts = None,
    *,
    minimal_pairs: Annotated[
        bool,
        typer.Option(
            "--minimal-pairs",
            help="Read files with an acceptable and an unacceptable sentence per row, and show how "
            "often the acceptable one has the higher score.",
        ),
    ] = False,
    reduction: Annotated[
        Literal["sum", "mean"],
        typer.Option(
            metavar="NAME",
            help="Minimal pairs: compare the sum or the mean of the tokens' log-probabilities.",
        ),
    ] = "sum",
    pll_metric: Annotated[
        Literal["original", "within_word_l2r"] | None,
        typer.Option(
            metavar="NAME",
            help="For masked models: original masks one token at a time, within_word_l2r also the "
            "later tokens of its word (default: original).",
        ),
    ] = None,
    eos: Annotated[
        bool,
        typer.Option("--eos/--no-eos", help="For causal models: score the end of the text, too."),
    ] = True,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show every token with its log-probability.")
    ] = False,
    database: Database = None,
    files: Files = None,
    text_column: TextColumn = None,
    skip_bad: SkipBad = False,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = "float32",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compute the log-probability and perplexity of texts with any language model."""
    options: dict[str, Any] = {"pll_metric": pll_metric, "include_eos": eos, "database": database}
    outcomes = Outcomes("texts", skip_bad=skip_bad)
    sources = [*(texts or []), *(files or [])]
    if minimal_pairs and not sources:
        raise typer.BadParameter("give a file of minimal pairs", param_hint="TEXT")
    inputs = (
        iter(())
        if minimal_pairs
        else read_inputs(texts, files, text_column, on_error=outcomes.on_error)
    )

    from cloze.checkpoint.load import load
    from cloze.tasks.score import score

    opened = load(model, device=device, dtype=dtype, quiet=quiet)
    if minimal_pairs:
        options |= {"reduction": reduction, "seed": seed}
        _score_pairs(opened, sources, options, outcomes, as_json=as_json, quiet=quiet)
        return

    def score_all(rows: "Sequence[Row]", **others: Any) -> "Sequence[Any]":  # noqa: ANN401
        return score(opened, [row.text for row in rows], **options, **others)

    with outcomes.predict(score_all, inputs, ["text"], quiet=quiet) as results:
        if as_json:
            print_json_lines(results)
        else:
            print_text_scores(results, tokens=tokens)


def _score_pairs(
    model: "Model",
    sources: list[str],
    options: dict[str, Any],
    outcomes: Outcomes,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    from cloze.data.labelled.minimal_pairs import read_minimal_pairs
    from cloze.tasks.score import score_pairs

    pairs = list(read_minimal_pairs(list(sources), on_error=outcomes.on_error))
    with progress(quiet) as show:
        result = score_pairs(model, pairs, progress=show, **options)
    if as_json:
        print_json(result.to_dict())
    else:
        print_pair_scores(result)
    outcomes.finish()
