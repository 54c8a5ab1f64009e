"""Charts of scores: the confusion matrix and the calibration (reliability) diagram."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from cloze.metrics.labels import Calibration, Label, confusion_matrix, unique_labels
from cloze.metrics.names import format_score, metric_label
from cloze.plot.format import format_percent
from cloze.plot.heatmap import Heatmap
from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Fact


def format_scores(scores: Mapping[str, float]) -> list[Fact]:
    """Scores with labels: fractions in percent, the others as numbers."""
    return [
        Fact(label=metric_label(name), text=format_score(name, value), value=value)
        for name, value in scores.items()
    ]


def plot_confusion_matrix(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    labels: Sequence[Label] | None = None,
    *,
    title: str = "Confusion matrix",
) -> Heatmap:
    """The number of examples of each label (row) that were predicted as each label (column).

    The shade is the fraction of the row, so that rare labels are as visible as frequent ones.
    """
    known = unique_labels(gold, predicted) if labels is None else labels
    return plot_confusion_counts(confusion_matrix(gold, predicted, known), known, title=title)


def plot_confusion_counts(
    counted: ArrayLike,
    labels: Sequence[Label],
    *,
    title: str = "Confusion matrix",
    what: str = "examples",
) -> Heatmap:
    """The same, from the counts."""
    counts = np.asarray(counted)
    rows = counts.sum(1, keepdims=True).clip(1)
    names = [str(label) for label in labels]
    return Heatmap(
        title=title,
        values=counts.tolist(),
        rows=names,
        columns=names,
        row_title="gold",
        column_title="predicted",
        shades=(counts / rows).tolist(),
        shade_title="of its row",
        note=f"{int(counts.sum()):,} {what}, {int(counts.trace()):,} of them correct (on the "
        "diagonal). Colors show fractions of the row.",
    )


def plot_calibration(calibration: Calibration, *, title: str = "Reliability") -> LineChart:
    """The accuracy of predictions by their confidence.

    Each bin has a point at its mean confidence; the steps show the fraction of predictions in it.
    """
    filled = [one for one in calibration.bins if one.count]
    shown = [one for one in calibration.bins if one.low >= filled[0].low]  # others are empty
    low = shown[0].low
    return LineChart(
        title=title,
        y_label=f"expected calibration error {format_percent(calibration.error)}",
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
            Series(name="perfectly calibrated", x=[low, 1], y=[low, 1], style="reference"),
            Series(
                name="fraction of predictions",
                x=[edge for one in shown for edge in (one.low, one.high)],
                y=[one.count / calibration.count for one in shown for _ in range(2)],
                color=0,
            ),
        ],
        note=f"{calibration.count:,} predictions in {len(calibration.bins)} bins. "
        "Below the dashed line the model is overconfident, above it underconfident.",
    )
