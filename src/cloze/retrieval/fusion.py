"""Reciprocal rank fusion: one ranking of several."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
CONSTANT = 60  # of the paper


def fuse_rankings(
    rankings: Iterable[Sequence[Key]], *, constant: float = CONSTANT
) -> dict[Key, float]:
    """Σ 1 / (constant + rank) over the rankings that contain an item, the best item first.

    Ranks are from 1. Items with equal scores are in the order in which they first occur. Cormack,
    Clarke and Büttcher 2009.
    """
    scores: dict[Key, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1 / (constant + rank)
    return dict(sorted(scores.items(), key=lambda one: -one[1]))
