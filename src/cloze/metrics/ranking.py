"""Metrics of rankings: nDCG, recall, reciprocal rank of one query.

A ranking is the ids of documents, best first. `relevance` has the gain of each relevant document;
others have 0.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

H = TypeVar("H", bound=Hashable)  # the id of a document


def compute_ndcg(ranking: Sequence[H], relevance: Mapping[H, float], k: int = 10) -> float:
    """DCG@k of a ranking, divided by that of the best one; DCG@k = Σ_{i≤k} gain_i / log2(i + 1).

    Gains are linear, as in trec_eval and scikit-learn; negative ones count as 0. It is 0 if no
    document is relevant. Järvelin and Kekäläinen 2002.
    """
    gains = [max(0.0, float(relevance.get(one, 0))) for one in ranking[:k]]
    ideal = sorted((max(0.0, float(one)) for one in relevance.values()), reverse=True)[:k]
    best = _compute_dcg(ideal)
    return _compute_dcg(gains) / best if best else 0.0


def _compute_dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def compute_recall(ranking: Sequence[H], relevance: Mapping[H, float], k: int = 10) -> float:
    """The fraction of the relevant documents that are among the first k; 0 if there are none."""
    relevant = {one for one, gain in relevance.items() if gain > 0}
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def compute_reciprocal_rank(
    ranking: Sequence[H], relevance: Mapping[H, float], k: int = 10
) -> float:
    """1 / rank of the first relevant document among the first k, else 0.

    The mean over queries is MRR@k.
    """
    for rank, one in enumerate(ranking[:k], 1):
        if relevance.get(one, 0) > 0:
            return 1 / rank
    return 0.0


def find_ranks(scores: NDArray[np.floating], correct: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of the correct candidate (q) of each query among all (q n), from 1.

    Candidates with an equal score count as better: a model that scores all alike gains nothing.
    """
    own = np.take_along_axis(scores, correct[:, None], 1)
    return (scores >= own).sum(1)
