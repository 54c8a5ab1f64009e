"""Metrics of label predictions: precision, recall, F1, Matthews correlation, calibration.

All but the last are computed from the confusion matrix (k k; rows are gold labels). Undefined
cases, such as the precision of a label that is never predicted, are 0, as in scikit-learn with
zero_division=0.
"""

import math
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import in_range
from cloze.errors import InputError

Label: TypeAlias = str | int
Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LabelScores:
    """Precision, recall and F1 of one label, or of one type of span.

    P = TP/predicted, R = TP/support, F1 = 2·P·R/(P + R) = 2·TP/(predicted + support). With a
    denominator of 0 they are 0, as in scikit-learn and conlleval.
    """

    true_positives: int
    predicted: int  # number of predictions of the label
    support: int  # number of gold labels

    @property
    def precision(self) -> float:
        return _divide(self.true_positives, self.predicted)

    @property
    def recall(self) -> float:
        return _divide(self.true_positives, self.support)

    @property
    def f1(self) -> float:
        return _divide(2 * self.true_positives, self.predicted + self.support)


def sum_scores(scores: Iterable[LabelScores]) -> LabelScores:
    """The micro-average: the sums of all counts."""
    labels = list(scores)
    return LabelScores(
        true_positives=sum(one.true_positives for one in labels),
        predicted=sum(one.predicted for one in labels),
        support=sum(one.support for one in labels),
    )


def macro_f1(scores: Iterable[LabelScores]) -> float:
    """The macro-average: the unweighted mean of the F1 of all labels; 0 without labels."""
    values = [one.f1 for one in scores]
    return _divide(sum(values), len(values))


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


def check_paired(gold: Sized, predicted: Sized) -> int:
    """The number of examples; raises if there are none, or not one prediction for each."""
    if len(gold) != len(predicted):
        raise InputError(
            f"there are {len(gold):,} examples and {len(predicted):,} predictions",
            fix="pass one prediction for each example, in the same order",
        )
    if not len(gold):
        raise InputError("there are no examples to score", fix="pass at least one")
    return len(gold)


def unique_labels(gold: Sequence[Label], predicted: Sequence[Label]) -> list[Label]:
    """All labels that occur, sorted."""
    return sorted({*gold, *predicted})


def label_indices(values: Sequence[Label], labels: Sequence[Label]) -> Counts:
    """The index of each value among the labels."""
    indices = {label: index for index, label in enumerate(labels)}
    try:
        return np.array([indices[value] for value in values], np.int64)
    except KeyError as error:
        raise InputError(
            f"the label {error.args[0]!r} is not among {', '.join(map(str, labels))}",
            fix="pass all labels that occur",
        ) from None


def confusion_matrix(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None = None
) -> Counts:
    """The number of examples of each gold label (row) by predicted label (column)."""
    check_paired(gold, predicted)
    known = unique_labels(gold, predicted) if labels is None else labels
    return count_confusions(label_indices(gold, known), label_indices(predicted, known), len(known))


def count_confusions(gold: Counts, predicted: Counts, count: int) -> Counts:
    """The confusion matrix of indices of labels; there are `count` labels."""
    return np.bincount(gold * count + predicted, minlength=count**2).reshape(count, count)


def score_confusion_matrix(matrix: Counts) -> list[LabelScores]:
    """Precision, recall and F1 of each label of a confusion matrix."""
    columns = zip(
        matrix.diagonal().tolist(), matrix.sum(0).tolist(), matrix.sum(1).tolist(), strict=True
    )
    return [
        LabelScores(true_positives=true_positives, predicted=predicted, support=support)
        for true_positives, predicted, support in columns
    ]


def score_labels(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None = None
) -> dict[Label, LabelScores]:
    """Precision, recall and F1 of each label."""
    known = unique_labels(gold, predicted) if labels is None else labels
    return dict(
        zip(known, score_confusion_matrix(confusion_matrix(gold, predicted, known)), strict=True)
    )


def matthews_correlation(matrix: Counts) -> float:
    """The Matthews correlation coefficient of two labels, or R_K of more.  Gorodkin 2004, eq. 8.

    0 if there is only one gold label, or only one predicted label.
    """
    gold, predicted, count = matrix.sum(1).tolist(), matrix.sum(0).tolist(), int(matrix.sum())
    # integers of Python, because squares of large counts do not fit into 64 bits
    shared = sum(a * b for a, b in zip(gold, predicted, strict=True))
    covariance = int(matrix.trace()) * count - shared
    variances = (count**2 - sum(a * a for a in gold)) * (count**2 - sum(b * b for b in predicted))
    return covariance / math.sqrt(variances) if variances else 0.0


@dataclass(frozen=True, kw_only=True)
class Bin:
    """The predictions with low < confidence ≤ high."""

    low: float
    high: float
    count: int
    confidence: float | None  # the mean; None without predictions
    accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The accuracy of predictions by their confidence."""

    bins: tuple[Bin, ...]
    error: float  # expected calibration error: Σ count/n · |accuracy − confidence|

    @property
    def count(self) -> int:
        return sum(one.count for one in self.bins)


def compute_calibration(
    confidence: Sequence[float] | NDArray[np.floating],
    correct: Sequence[bool] | NDArray[np.bool_],
    bins: int = 10,
) -> Calibration:
    """Mean confidence and accuracy in bins of equal width.  Guo et al. 2017, eq. 3.

    Args:
        confidence: the probability of each predicted label.
        correct: whether the prediction is correct.
        bins: the number of bins; the first one includes 0.
    """
    check_paired(confidence, correct)
    in_range("bins", bins, 1, 10_000)
    confidences = np.asarray(confidence, np.float64)
    hits = np.asarray(correct, np.float64)
    if not (confidences.min() >= 0 and confidences.max() <= 1):  # also fails for NaN
        raise InputError("a confidence is not between 0 and 1", fix="pass probabilities")
    edges = np.linspace(0, 1, bins + 1)
    indices = np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, None)
    counts = np.bincount(indices, minlength=bins)
    confidence_sums, hit_sums = (
        np.bincount(indices, values, minlength=bins) for values in (confidences, hits)
    )
    filled = [
        Bin(
            low=float(edges[n]),
            high=float(edges[n + 1]),
            count=int(count),
            confidence=float(confidence_sums[n] / count) if count else None,
            accuracy=float(hit_sums[n] / count) if count else None,
        )
        for n, count in enumerate(counts)
    ]
    error = np.abs(confidence_sums - hit_sums).sum() / len(confidences)
    return Calibration(bins=tuple(filled), error=float(error))
