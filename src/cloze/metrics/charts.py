"""Scores as pictures: what is taken for what, and whether sureness is earned."""

from collections.abc import Mapping, Sequence
from math import isfinite

from cloze.metrics.labels import Calibration, Label, confusion_matrix, unique_labels
from cloze.metrics.names import MEASURES, called
from cloze.plot.chart import LineChart, Series
from cloze.plot.heat import Heat
from cloze.plot.numbers import percent
from cloze.plot.parts import Fact


def format_scores(scores: Mapping[str, float]) -> list[Fact]:
    """Scores as people read them: shares in per cent, all else as numbers."""
    return [
        Fact(label=called(name), text=_written(name, value), value=value)
        for name, value in scores.items()
    ]


def _written(name: str, value: float) -> str:
    if name not in MEASURES or not isfinite(value):
        return f"{value:.4f}"
    write = MEASURES[name].write
    return percent(value, 2) if write is percent else write(value)


def plot_confusion_matrix(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    labels: Sequence[Label] | None = None,
    *,
    title: str = "Confusion matrix",
) -> Heat:
    """How often each label was taken for each.

    The shade is a share of the row, so that a rare label is seen as well as a frequent one.
    """
    known = unique_labels(gold, predicted) if labels is None else labels
    counts = confusion_matrix(gold, predicted, known)
    rows = counts.sum(1, keepdims=True).clip(1)
    names = [str(label) for label in known]
    return Heat(
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
        y_label=f"expected calibration error {percent(made.error)}",
        x_label="confidence",
        percent=True,
        include=[0, 1],
        series=[
            Series(
                name="accuracy",
                x=[one.confidence or 0.0 for one in filled],
                y=[one.accuracy for one in filled],
                colour=1,
            ),
            Series(name="as claimed", x=[low, 1], y=[low, 1], style="reference"),
            Series(
                name="share of the predictions",
                x=[edge for one in shown for edge in (one.low, one.high)],
                y=[one.count / made.count for one in shown for _ in range(2)],
                colour=0,
            ),
        ],
        note=f"{made.count:,} predictions in {len(made.bins)} bins. Below the dashed line the "
        "model is right less often than it claims, above it more often.",
    )
