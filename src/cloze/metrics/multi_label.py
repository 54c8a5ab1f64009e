"""Metrics of predictions with several labels per example, and the thresholds of the labels.

All arrays have a row per example and a column per label (n k). Undefined cases are 0, as in
scikit-learn with zero_division=0; labels that neither occur nor are predicted do not count. The F1
of an example without labels is 1 if none is predicted (zero_division=1).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.metrics.labels import LabelScores, macro_f1, sum_scores

Matrix: TypeAlias = NDArray[np.bool_]  # n k
Probabilities: TypeAlias = NDArray[np.float64]  # n k
Indices: TypeAlias = NDArray[np.int64]
DEFAULT_THRESHOLD = 0.5
MIN_SUPPORT = 10  # examples of a label from which its own threshold is chosen


def make_label_matrix(rows: Sequence[Iterable[str]], labels: Sequence[str]) -> Matrix:
    """Which example has which label (n k)."""
    indices = {label: index for index, label in enumerate(labels)}
    matrix = np.zeros((len(rows), len(labels)), np.bool_)
    for number, row in enumerate(rows):
        matrix[number, [indices[label] for label in row]] = True
    return matrix


def score_label_matrix(gold: Matrix, predicted: Matrix) -> list[LabelScores]:
    """Precision, recall and F1 of each label."""
    columns = ((gold & predicted).sum(0), predicted.sum(0), gold.sum(0))
    return [
        LabelScores(true_positives=hits, predicted=found, support=support)
        for hits, found, support in zip(*(column.tolist() for column in columns), strict=True)
    ]


class RankedLabels:
    """The examples in the order of their probabilities, for each label: prepared for a bootstrap.

    Average precision is Σ (R_i − R_{i−1})·P_i over the thresholds: the mean over the examples that
    have the label of the precision at their probability.
    """

    def __init__(self, gold: Matrix, probabilities: Probabilities) -> None:
        self._order = np.argsort(-probabilities, axis=0, kind="stable")  # n k
        ranked = np.take_along_axis(probabilities, self._order, 0)
        self._gold = np.take_along_axis(gold, self._order, 0)
        # examples with equal probabilities have one threshold: that of the last of them
        is_last = np.concatenate([ranked[1:] < ranked[:-1], np.ones((1, ranked.shape[1]), bool)])
        numbers = np.where(is_last, np.arange(len(ranked))[:, None], len(ranked))
        self._last = np.minimum.accumulate(numbers[::-1], axis=0)[::-1]

    def average_precisions(self, indices: Indices) -> NDArray[np.float64]:
        """The average precision of each label on some examples; NaN if none of them has it."""
        times = np.bincount(indices, minlength=len(self._order))[self._order]  # n k
        hits = times * self._gold
        before, found = times.cumsum(0), hits.cumsum(0)
        precision = np.take_along_axis(found / np.maximum(before, 1), self._last, 0)
        with np.errstate(invalid="ignore"):
            mean: NDArray[np.float64] = (hits * precision).sum(0) / hits.sum(0)
        return mean


def prepare_multi_label(
    gold: Sequence[Iterable[str]],
    predicted: Sequence[Iterable[str]],
    labels: Sequence[str],
    probabilities: Probabilities | None,
) -> Any:  # noqa: ANN401 - a function of indices, which can be pickled
    """A function that scores any subset of the examples."""
    both = [make_label_matrix(rows, labels) for rows in (gold, predicted)]
    ranked = None if probabilities is None else RankedLabels(both[0], probabilities)
    return partial(_score_subset, both[0], both[1], ranked)


def _score_subset(
    gold: Matrix, predicted: Matrix, ranked: RankedLabels | None, indices: Indices
) -> dict[str, float]:
    right, found = gold[indices], predicted[indices]
    by_label = score_label_matrix(right, found)
    sizes = right.sum(1) + found.sum(1)
    hits = 2 * (right & found).sum(1)
    scores = {
        "f1_micro": sum_scores(by_label).f1,
        "f1_macro": macro_f1(one for one in by_label if one.predicted or one.support),
        # an example without labels for which none is predicted is right
        "f1_samples": float(np.where(sizes, hits / np.maximum(sizes, 1), 1.0).mean()),
        "subset_accuracy": float((right == found).all(1).mean()),
    }
    if ranked is not None:
        precisions = ranked.average_precisions(indices)
        known = precisions[~np.isnan(precisions)]
        scores["mean_average_precision"] = float(known.mean()) if len(known) else 0.0
    return scores


def find_label_thresholds(
    gold: Matrix, probabilities: Probabilities, *, default: float = DEFAULT_THRESHOLD
) -> list[float]:
    """The threshold of each label with the highest F1; `default` for a label that never occurs.

    A threshold is halfway between two probabilities; of several the one closest to the default.
    Few examples do not tell where it is: labels with fewer than `MIN_SUPPORT` share the threshold
    that is best for all of them together.
    """
    support = gold.sum(0)
    is_rare = (support > 0) & (support < MIN_SUPPORT)
    shared = _find_threshold(gold[:, is_rare].ravel(), probabilities[:, is_rare].ravel(), default)
    columns = zip(gold.T, probabilities.T, is_rare, strict=True)
    return [
        shared if rare else _find_threshold(right, found, default) for right, found, rare in columns
    ]


def _find_threshold(
    gold: NDArray[np.bool_], probabilities: NDArray[np.float64], default: float
) -> float:
    if not gold.any():
        return default
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    hits = gold[order].cumsum()
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + gold.sum())
    cuts = (ranked + np.append(ranked[1:], 0.0)) / 2
    is_cut = np.append(ranked[1:] < ranked[:-1], True)  # not between equal probabilities
    best = is_cut & np.isclose(f1, f1[is_cut].max(), rtol=0, atol=1e-12)
    # the default itself, if it is as good as the best cut
    at_default = (probabilities >= default).sum()
    if at_default and best[at_default - 1]:
        return default
    return float(min(cuts[best], key=lambda cut: abs(cut - default)))


def compute_majority_f1(gold: Sequence[Iterable[str]]) -> float:
    """The best micro F1 of a constant prediction, which is a number of the most frequent labels."""
    counts = sorted(Counter(label for row in gold for label in row).values(), reverse=True)
    hits = np.cumsum(counts)
    predicted = np.arange(1, len(counts) + 1) * len(gold)
    return float((2 * hits / (predicted + sum(counts))).max()) if counts else 0.0
