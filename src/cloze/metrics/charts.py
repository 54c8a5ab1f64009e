"""Scores as pictures: what is taken for what, and whether sureness is earned."""

from collections.abc import Mapping, Sequence
from math import isfinite

from cloze.metrics.labels import Calibration, Label, confusion_matrix, unique_labels
from cloze.metrics.names import METRICS, metric_label
from cloze.plot.format import format_percent
from cloze.plot.heatmap import Heatmap
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Fact


def format_scores(scores: Mapping[str, float]) -> list[Fact]:
    """Scores as people read them: shares in per cent, all else as numbers."""
    return [
        Fact(label=metric_label(name), text=_written(name, value), value=value)
        for name, value in scores.items()
    ]


def _written(name: str, value: float) -> str:
    if name not in METRICS or not isfinite(value):
        return f"{value:.4f}"
    write = METRICS[name].format
    return format_percent(value, 2) if write is format_percent else write(value)


def plot_confusion_matrix(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    labels: Sequence[Label] | None = None,
    *,
    title: str = "Confusion matrix",
) -> Heatmap:
    """How often each label was taken for each.

    The shade is a share of the row, so that a rare label is seen as well as a frequent one.
    """
    known = unique_labels(gold, predicted) if labels is None else labels
    counts = confusion_matrix(gold, predicted, known)
    rows = counts.sum(1, keepdims=True).clip(1)
    names = [str(label) for label in known]
    return Heatmap(
        title=title,
        values=counts.tolist(),
        rows=names,
        columns=names,
        row_title="actual",
        column_title="predicted",
        shades=(counts / rows).tolist(),
        shade_title="of its row",
        note=f"{int(counts.sum()):,} examples, {int(counts.trace()):,} of them right: "
        "the diagonal. The shade is the share of the row.",
    )


def plot_calibration(made: Calibration, *, title: str = "Reliability") -> LineChart:
    """How often predictions of about the same confidence are right.

    A point to a bin, at its mean confidence; the steps are how much of all predictions it holds.
    """
    filled = [one for one in made.bins if one.count]
    shown = [one for one in made.bins if one.low >= filled[0].low]  # below nothing was claimed
    low = shown[0].low
    return LineChart(
        title=title,
        y_label=f"expected calibration error {format_percent(made.error)}",
        x_label="confidence",
        percent=True,
        include=[0, 1],
        series=[
            Series(
                name="accuracy",
                x=[one.confidence or 0.0 for one in filled],
                y=[one.accuracy for one in filled],
                color=1,
            ),
            Series(name="as claimed", x=[low, 1], y=[low, 1], style="reference"),
            Series(
                name="share of the predictions",
                x=[edge for one in shown for edge in (one.low, one.high)],
                y=[one.count / made.count for one in shown for _ in range(2)],
                color=0,
            ),
        ],
        note=f"{made.count:,} predictions in {len(made.bins)} bins. Below the dashed line the "
        "model is right less often than it claims, above it more often.",
    )
