"""Precision, recall and F1 from three counts, and their averages over several labels."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cloze.config import one_of

Average: TypeAlias = Literal["macro", "micro", "weighted"]
AVERAGES: tuple[Average, ...] = ("macro", "micro", "weighted")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How well one label, or one kind of span, was found.

    P = right/found, R = right/wanted, F1 = 2·P·R/(P + R) = 2·right/(found + wanted). Where a
    quotient has no value it is 0, as in scikit-learn and conlleval.
    """

    right: int  # found where it was wanted
    found: int
    wanted: int

    @property
    def precision(self) -> float:
        return _share(self.right, self.found)

    @property
    def recall(self) -> float:
        return _share(self.right, self.wanted)

    @property
    def f1(self) -> float:
        return _share(2 * self.right, self.found + self.wanted)


@dataclass(frozen=True, kw_only=True)
class Averaged:
    """The three rates of several labels as one."""

    precision: float
    recall: float
    f1: float


def total(rates: Iterable[Rates]) -> Rates:
    """All labels counted as one."""
    listed = list(rates)
    return Rates(
        right=sum(one.right for one in listed),
        found=sum(one.found for one in listed),
        wanted=sum(one.wanted for one in listed),
    )


def average(rates: Iterable[Rates], how: Average) -> Averaged:
    """Macro: every label counts the same; weighted: as often as it was wanted; micro: `total`.

    Macro F1 is the mean of the labels' F1, not the F1 of the mean rates.
    """
    one_of("average", how, AVERAGES)
    listed = list(rates)
    if how == "micro":
        whole = total(listed)
        return Averaged(precision=whole.precision, recall=whole.recall, f1=whole.f1)
    weights = [one.wanted if how == "weighted" else 1 for one in listed]

    def mean(values: Iterable[float]) -> float:
        weighed = sum(value * weight for value, weight in zip(values, weights, strict=True))
        return _share(weighed, sum(weights))

    return Averaged(
        precision=mean(one.precision for one in listed),
        recall=mean(one.recall for one in listed),
        f1=mean(one.f1 for one in listed),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
