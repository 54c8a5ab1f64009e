"""Precision, recall and F1 from three counts, and of several labels."""

from collections.abc import Iterable
from dataclasses import dataclass


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
    listed = list(rates)
    return LabelScores(
        true_positives=sum(one.true_positives for one in listed),
        predicted=sum(one.predicted for one in listed),
        support=sum(one.support for one in listed),
    )


def macro_f1(rates: Iterable[LabelScores]) -> float:
    """The mean of the labels' F1, in which every label counts the same; 0 of none."""
    listed = [one.f1 for one in rates]
    return _share(sum(listed), len(listed))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
