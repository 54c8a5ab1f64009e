"""Mine hard negatives: texts that are similar to an anchor, but are positives of others.

g rows, c candidates, k negatives of a row.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.data.batch import Ints
from cloze.data.pair_batch import MISSING
from cloze.data.text_pairs import TextPairs
from cloze.retrieval.exact import search_exact

_SEARCHED = 4  # times as many candidates are looked at as negatives are needed
_MORE = 16  # candidates that are looked at in addition

Vectors = NDArray[np.float32]


def mine_negatives(
    pairs: TextPairs,
    embed: Callable[[list[str]], Vectors],
    *,
    count: int,
    margin: float,
) -> Ints:
    """The numbers of `count` hard negatives of each row (g k); MISSING where there are fewer.

    All positives are candidates, found by exact search, the most similar first. Left out are the
    anchor, its positives in all rows, and candidates whose similarity to the anchor is more than
    (1 − margin) times that of its positive: these are probably relevant themselves (Moreira et al.
    2024, §3.2, "TopK-PercPos"; they recommend a margin of 0.05).

    Args:
        pairs: the rows.
        embed: computes vectors of length 1 of texts.
        count: number of negatives.
        margin: from 0 to 1.
    """
    used = np.unique(pairs.rows[:, :2])
    vectors = embed([pairs.texts[n] for n in used.tolist()])
    places = np.searchsorted(used, pairs.rows[:, :2])  # g 2
    anchors, positives = vectors[places[:, 0]], vectors[places[:, 1]]
    candidates = np.unique(pairs.rows[:, 1])
    keys = vectors[np.searchsorted(used, candidates)]
    scores, found = search_exact(
        torch.from_numpy(anchors), torch.from_numpy(keys), _SEARCHED * count + _MORE
    )
    limit = (1 - margin) * (anchors * positives).sum(1)  # g
    numbers = np.where(found.numpy() >= 0, candidates[found.numpy()], MISSING)
    is_valid = (numbers != MISSING) & (scores.numpy() <= limit[:, None])
    is_valid &= ~_find_positives(pairs, numbers)
    is_valid &= is_valid.cumsum(1) <= count
    mined = np.full((len(pairs), count), MISSING)
    rows, columns = np.nonzero(is_valid)
    mined[rows, is_valid.cumsum(1)[rows, columns] - 1] = numbers[rows, columns]
    return mined


def add_negatives(rows: Ints, mined: Ints) -> Ints:
    """Rows with the mined negatives after their own."""
    return np.concatenate([rows, mined], axis=1)


def _find_positives(pairs: TextPairs, numbers: Ints) -> NDArray[np.bool_]:
    """Which candidates of each row (g c) are its anchor, or a positive of the same anchor."""
    anchors = pairs.rows[:, 0]
    total = len(pairs.texts)
    known = np.unique(anchors * total + pairs.rows[:, 1])  # pairs of anchor and positive
    found = anchors[:, None] * total + numbers
    place = np.searchsorted(known, found).clip(max=len(known) - 1)
    return (known[place] == found) | (numbers == anchors[:, None])
