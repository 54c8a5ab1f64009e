"""Precision, recall and F1 from three counts, and of several labels."""

from collections.abc import Iterable
from dataclasses import dataclass


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


def total(rates: Iterable[Rates]) -> Rates:
    """All labels counted as one."""
    listed = list(rates)
    return Rates(
        right=sum(one.right for one in listed),
        found=sum(one.found for one in listed),
        wanted=sum(one.wanted for one in listed),
    )


def macro_f1(rates: Iterable[Rates]) -> float:
    """The mean of the labels' F1, in which every label counts the same; 0 of none."""
    listed = [one.f1 for one in rates]
    return _share(sum(listed), len(listed))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
