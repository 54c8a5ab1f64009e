"""How well labels were told: rates of each, Matthews' correlation, and whether sureness was earned.

Everything follows from the confusion matrix (k k): what was, by what was said. Degenerate cases,
such as a label that is never said, are scored as scikit-learn scores them with zero_division=0.
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
    """How well one label, or one kind of span, was found.

    P = right/found, R = right/wanted, F1 = 2·P·R/(P + R) = 2·right/(found + wanted). Where a
    quotient has no value it is 0, as in scikit-learn and conlleval.
    """

    true_positives: int  # found where it was wanted
    predicted: int
    support: int

    @property
    def precision(self) -> float:
        return _share(self.true_positives, self.predicted)

    @property
    def recall(self) -> float:
        return _share(self.true_positives, self.support)

    @property
    def f1(self) -> float:
        return _share(2 * self.true_positives, self.predicted + self.support)


def sum_scores(rates: Iterable[LabelScores]) -> LabelScores:
    """All labels counted as one."""
    as_list = list(rates)
    return LabelScores(
        true_positives=sum(one.true_positives for one in as_list),
        predicted=sum(one.predicted for one in as_list),
        support=sum(one.support for one in as_list),
    )


def macro_f1(rates: Iterable[LabelScores]) -> float:
    """The mean of the labels' F1, in which every label counts the same; 0 of none."""
    as_list = [one.f1 for one in rates]
    return _share(sum(as_list), len(as_list))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def check_paired(gold: Sized, predicted: Sized) -> int:
    """How many examples there are; an error where there are none, or two different numbers."""
    if len(gold) != len(predicted):
        raise InputError(
            f"there are {len(gold):,} examples and {len(predicted):,} predictions",
            fix="give one prediction for each example, in the same order",
        )
    if not len(gold):
        raise InputError("there are no examples to score", fix="give at least one")
    return len(gold)


def unique_labels(gold: Sequence[Label], predicted: Sequence[Label]) -> list[Label]:
    """Every label that occurs, in order."""
    return sorted({*gold, *predicted})


def label_indices(values: Sequence[Label], labels: Sequence[Label]) -> Counts:
    """Each value as its place among the labels."""
    places = {label: place for place, label in enumerate(labels)}
    try:
        return np.array([places[value] for value in values], np.int64)
    except KeyError as error:
        raise InputError(
            f"the label {error.args[0]!r} is not among {', '.join(map(str, labels))}",
            fix="name every label that occurs",
        ) from None


def confusion_matrix(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None = None
) -> Counts:
    """How often each label (row) was taken for each (column), in the order of `labels`."""
    check_paired(gold, predicted)
    known = unique_labels(gold, predicted) if labels is None else labels
    return confusion_of_indices(
        label_indices(gold, known), label_indices(predicted, known), len(known)
    )


def confusion_of_indices(gold: Counts, predicted: Counts, count: int) -> Counts:
    """The same from places among `count` labels."""
    return np.bincount(gold * count + predicted, minlength=count**2).reshape(count, count)


def scores_of_matrix(matrix: Counts) -> list[LabelScores]:
    """Precision, recall and F1 of each label of a confusion matrix."""
    columns = zip(
        matrix.diagonal().tolist(), matrix.sum(0).tolist(), matrix.sum(1).tolist(), strict=True
    )
    return [
        LabelScores(true_positives=right, predicted=found, support=wanted)
        for right, found, wanted in columns
    ]


def score_labels(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None = None
) -> dict[Label, LabelScores]:
    """Precision, recall and F1 of each label."""
    known = unique_labels(gold, predicted) if labels is None else labels
    return dict(zip(known, scores_of_matrix(confusion_matrix(gold, predicted, known)), strict=True))


def matthews_correlation(matrix: Counts) -> float:
    """Matthews' correlation of two labels, and R_K of more; 0 where all are, or are called, one.

    Gorodkin 2004, eq. 8.
    """
    was, said, count = matrix.sum(1).tolist(), matrix.sum(0).tolist(), int(matrix.sum())
    # whole numbers of Python: squares of many examples would not fit into 64 bits
    together = int(matrix.trace()) * count - sum(a * b for a, b in zip(was, said, strict=True))
    alone = (count**2 - sum(a * a for a in was)) * (count**2 - sum(b * b for b in said))
    return together / math.sqrt(alone) if alone else 0.0


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Predictions of about the same confidence, low < confidence ≤ high."""

    low: float
    high: float
    count: int
    confidence: float | None  # its mean; None where there are no predictions
    accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Whether predictions are right as often as they claim."""

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
    """Confidence against accuracy, in bins of equal width.  Guo et al. 2017, eq. 3.

    Args:
        confidence: the probability that was given to each predicted label.
        correct: whether it was the right one.
        bins: how many; the first one holds 0 too.
    """
    check_paired(confidence, correct)
    in_range("bins", bins, 1, 10_000)
    sure = np.asarray(confidence, np.float64)
    right = np.asarray(correct, np.float64)
    if not (sure.min() >= 0 and sure.max() <= 1):  # so that NaN does not pass
        raise InputError("a confidence is no number from 0 to 1", fix="give probabilities")
    edges = np.linspace(0, 1, bins + 1)
    places = np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, None)
    counts = np.bincount(places, minlength=bins)
    sures, rights = (np.bincount(places, values, minlength=bins) for values in (sure, right))
    made = [
        Bin(
            low=float(edges[n]),
            high=float(edges[n + 1]),
            count=int(count),
            confidence=float(sures[n] / count) if count else None,
            accuracy=float(rights[n] / count) if count else None,
        )
        for n, count in enumerate(counts)
    ]
    return Calibration(bins=tuple(made), error=float(np.abs(sures - rights).sum() / len(sure)))
