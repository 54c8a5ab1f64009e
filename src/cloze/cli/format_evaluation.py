"""Print evaluations and comparisons as tables or tab-separated lines."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from cloze.cli.common import print_note
from cloze.cli.format import SHOWN_LABELS, print_table

if TYPE_CHECKING:
    from cloze.tasks.comparison import Comparison, LanguageComparison
    from cloze.tasks.evaluation import CorpusEvaluation, Evaluation
    from cloze.tasks.inputs import Failure
    from cloze.tasks.score import MinimalPairScores, TextScore

SHOWN_TEXT = 160  # characters of a text in a list of errors


def print_evaluation(result: "Evaluation | CorpusEvaluation") -> None:
    """Print the scores; for labelled examples also the confusion matrix and the worst errors."""
    from cloze.tasks.evaluation import CorpusEvaluation, shorten

    model = result.model or ""
    if isinstance(result, CorpusEvaluation):
        print_table(("score", model), result.rows())
        return
    print_table(("score", model), _score_rows(result))
    if result.note:
        print_note(result.note)
    matrix = result.confusion
    if matrix is not None and len(matrix.labels) <= SHOWN_LABELS and sys.stdout.isatty():
        counts = zip(matrix.labels, matrix.counts.tolist(), strict=True)
        rows = [(name, *row) for name, row in counts]
        print_table(("gold \\ predicted", *matrix.labels), rows)
    if result.listed_errors:
        errors = [
            (
                *(shorten(text, SHOWN_TEXT) for text in (one.text, one.gold, one.predicted)),
                f"{one.severity:.4g}",
                one.where,
            )
            for one in result.listed_errors
        ]
        columns = ("text", "gold", "predicted", result.severity, "source")
        print_table(columns, errors, title=f"the worst of {len(result.errors):,} errors")


def _score_rows(result: "Evaluation") -> Iterator[tuple[str, object]]:
    from cloze.metrics.names import metric_label

    found = {**result.scores, **result.baseline}
    yield from ((metric_label(name), f"{value:.4f}") for name, value in found.items())
    if result.calibration is not None:
        yield "calibration error", f"{result.calibration.error:.4f}"
    swapped = result.swapped
    if swapped is not None:
        if swapped.agreement is not None:
            yield "agreement after swapping", f"{swapped.agreement:.4f}"
        yield "difference after swapping", f"{swapped.difference:.4f}"
        score = swapped.scores[result.metric]
        yield f"{metric_label(result.metric)} after swapping", f"{score:.4f}"
    yield "examples", result.count
    if result.num_truncated:
        yield "truncated", result.num_truncated
    if result.chinese:
        yield "rules", "CMRC's"
    yield "time", f"{result.seconds:.1f} s"


def print_comparison(result: "Comparison | LanguageComparison") -> None:
    """Print one table, or one per model if the terminal is too narrow."""
    from cloze.metrics.names import metric_label

    columns = [metric_label(column) for column in result.columns]
    print_table(columns, [["" if cell is None else cell for cell in row] for row in result.rows()])


def print_text_scores(results: "Iterable[TextScore | Failure]", *, tokens: bool) -> None:
    """A row per text, or per token."""
    scored = (one for one in results if not hasattr(one, "error"))
    if tokens:
        rows: Iterator[Sequence[object]] = (
            (one.text, token.token, f"{token.log_probability:.4f}")
            for one in scored
            for token in one.tokens
        )
        print_table(("text", "token", "log-probability"), rows)
        return
    rows = (
        (one.text, len(one.tokens), f"{one.log_probability:.4f}", f"{one.perplexity:.4g}")
        for one in scored
    )
    print_table(("text", "tokens", "log-probability", "perplexity"), rows)


def print_pair_scores(result: "MinimalPairScores") -> None:
    """The accuracy and its interval."""
    accuracy = result.accuracy
    print_table(
        ("pairs", "accuracy", "95 % interval", "mean difference"),
        [
            (
                len(result.pairs),
                f"{accuracy.value:.4f}",
                f"[{accuracy.low:.4f}, {accuracy.high:.4f}]",
                f"{result.mean_difference:.4f}",
            )
        ],
    )
