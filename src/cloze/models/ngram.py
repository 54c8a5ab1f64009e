"""The n-gram language model: sorted tables, one per order, looked up by binary search.

v vocabulary, c n-grams of one order, t tokens, n order.

An n-gram is the number of its context among the (n−1)-grams and its last word, packed into one
integer. Tables are sorted by it, so what follows a context lies together, a rank is a place, and
a whole corpus is looked up at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.models.configs.ngram import BOS, NGramConfig

_CHUNK = 1 << 18  # tokens scored at once

Ints = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The n-grams of one order."""

    keys: Ints  # c, ascending: rank of the context << bits | last word
    log_p: Floats  # c
    backoff: Floats  # c; log weights, 0 where nothing follows; not asked at the highest order


@dataclass(frozen=True, kw_only=True)
class Step:
    """A context that was asked on the way to a probability."""

    context: tuple[int, ...]
    log_weight: float  # p of the word if it was seen here, else the back-off weight


class NGram:
    """p(w | h) = p*(w | h) if hw was seen, else γ(h)·p(w | h′), h′ being h less its first word.

    Katz 1987, eq. 4; the p* and γ of interpolated Kneser–Ney are made in `cloze.train.ngram`.
    """

    def __init__(self, config: NGramConfig, levels: Sequence[Level]) -> None:
        self.levels = tuple(levels)
        self.config = replace(config, counts=tuple(len(level.keys) for level in self.levels))

    @property
    def num_parameters(self) -> int:
        """The number of n-grams."""
        return sum(len(level.keys) for level in self.levels)

    def log_probs(self, ids: Ints) -> Floats:
        """Log p of every token given those before it, back to the nearest <s>; 0 at <s>."""
        found = np.empty(len(ids), dtype=np.float32)  # t
        reach = self.config.order - 1
        for start in range(0, len(ids), _CHUNK):
            first = max(0, start - reach)  # what the first tokens look back to
            end = min(start + _CHUNK, len(ids))
            found[start:end] = self._scored(np.asarray(ids[first:end]))[start - first :]
        return found

    def _scored(self, ids: Ints) -> Floats:
        bits = self.config.bits
        ranks = ids.astype(np.int64)  # of the n-gram that ends at each token; -1: never seen
        found = self.levels[0].log_p[ranks].astype(np.float64)
        inside = ids != BOS
        for before, level in zip(self.levels, self.levels[1:], strict=False):
            context = np.concatenate(([-1], ranks[:-1]))
            known = np.flatnonzero(inside & (context >= 0))
            found[known] += before.backoff[context[known]]
            ranks = np.full(len(ids), -1, dtype=np.int64)
            ranks[known] = find(level.keys, context[known] << bits | ids[known])
            seen = known[ranks[known] >= 0]
            found[seen] = level.log_p[ranks[seen]]
        found[~inside] = 0.0
        return found

    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every word; −∞ for <s>."""
        bits = self.config.bits
        found = np.full(1 << bits, -np.inf)  # room for any word a key can name
        found[: self.config.vocab_size] = self.levels[0].log_p
        for order, rank in enumerate(self._ranks(context), 1):  # from short contexts to long
            if rank >= 0:
                found += self.levels[order - 1].backoff[rank]
                level = self.levels[order]
                first, last = np.searchsorted(level.keys, [rank << bits, (rank + 1) << bits])
                found[level.keys[first:last] & ((1 << bits) - 1)] = level.log_p[first:last]
        return found[: self.config.vocab_size]  # v

    def backoff_path(self, context: Sequence[int], word: int) -> tuple[Step, ...]:
        """How p(word | context) comes about: back-off weights, then what the last context says.

        Contexts that were never seen have the weight 1 and are left out.
        """
        steps: list[Step] = []
        ranks = self._ranks(context)
        for order in range(len(ranks), 0, -1):
            rank = ranks[order - 1]
            if rank < 0:
                continue
            asked = tuple(context[-order:])
            at = self._rank(self.levels[order], rank, word)
            if at >= 0:
                said = float(self.levels[order].log_p[at])
                return (*steps, Step(context=asked, log_weight=said))
            weight = float(self.levels[order - 1].backoff[rank])
            steps.append(Step(context=asked, log_weight=weight))
        return (*steps, Step(context=(), log_weight=float(self.levels[0].log_p[word])))

    def _ranks(self, context: Sequence[int]) -> list[int]:
        """The ranks of the last 1, 2, … words of a context; −1 for those never seen."""
        longest = min(len(context), self.config.order - 1)
        found: list[int] = []
        for length in range(1, longest + 1):
            rank, *words = context[-length:]
            for level, word in zip(self.levels[1:], words, strict=False):
                rank = self._rank(level, rank, word)
            found.append(rank)
        return found

    def _rank(self, level: Level, context: int, word: int) -> int:
        if context < 0:
            return -1
        return int(find(level.keys, np.array([context << self.config.bits | word]))[0])


def find(keys: Ints, wanted: Ints) -> Ints:
    """Where each of `wanted` is among ascending `keys`; −1 where it is not."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(wanted)  # near keys in turn: the search then stays in the cache
    sorted_ = wanted[order]
    places = np.minimum(np.searchsorted(keys, sorted_), len(keys) - 1)
    found = np.empty(len(wanted), dtype=np.int64)
    found[order] = np.where(keys[places] == sorted_, places, -1)
    return found
