"""The n-gram language model: sorted tables, one per order, looked up by binary search.

v vocabulary, c n-grams of one order, t tokens, n order.

An n-gram is stored as one integer, its key: the rank of its context among the (n−1)-grams, and its
last word. Tables are sorted by key, so the continuations of a context are adjacent, the rank of an
n-gram is its row, and the n-grams of a whole corpus are found in one search.
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
    backoff: Floats  # c; log weights, 0 without continuations; not used at the highest order


@dataclass(frozen=True, kw_only=True)
class BackoffStep:
    """One step of the computation of a probability."""

    context: tuple[int, ...]
    log_weight: float  # log p of the word if it follows the context, else the log back-off weight


class NGram:
    """p(w | h) = p*(w | h) if hw was seen, else γ(h)·p(w | h′); h′ is h without its first word.

    Katz 1987, eq. 4. `cloze.train.ngram` computes the p* and γ of interpolated Kneser–Ney.
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
        context_size = self.config.order - 1
        for start in range(0, len(ids), _CHUNK):
            first = max(0, start - context_size)  # with the context of the first tokens
            end = min(start + _CHUNK, len(ids))
            found[start:end] = self._score_tokens(np.asarray(ids[first:end]))[start - first :]
        return found

    def _score_tokens(self, ids: Ints) -> Floats:
        bits = self.config.bits
        ranks = ids.astype(np.int64)  # of the n-gram that ends at each token; −1: not seen
        found = self.levels[0].log_p[ranks].astype(np.float64)
        is_predicted = ids != BOS
        for lower, level in zip(self.levels, self.levels[1:], strict=False):
            context = np.concatenate(([-1], ranks[:-1]))
            known = np.flatnonzero(is_predicted & (context >= 0))
            found[known] += lower.backoff[context[known]]
            ranks = np.full(len(ids), -1, dtype=np.int64)
            ranks[known] = find_ranks(level.keys, context[known] << bits | ids[known])
            seen = known[ranks[known] >= 0]
            found[seen] = level.log_p[ranks[seen]]
        found[~is_predicted] = 0.0
        return found

    def next_log_probs(self, context: Sequence[int]) -> Floats:
        """Log p(w | context) for every word; −∞ for <s>."""
        bits = self.config.bits
        found = np.full(1 << bits, -np.inf)  # an element for every value of the last word's bits
        found[: self.config.vocab_size] = self.levels[0].log_p
        ranks = self._find_context_ranks(context)
        for order, rank in enumerate(ranks, 1):  # from short contexts to long
            if rank >= 0:
                found += self.levels[order - 1].backoff[rank]
                level = self.levels[order]
                first, last = np.searchsorted(level.keys, [rank << bits, (rank + 1) << bits])
                found[level.keys[first:last] & ((1 << bits) - 1)] = level.log_p[first:last]
        return found[: self.config.vocab_size]  # v

    def backoff_path(self, context: Sequence[int], word: int) -> tuple[BackoffStep, ...]:
        """The steps to p(word | context): back-off weights, then the probability.

        Contexts that were never seen have the weight 1 and are omitted.
        """
        steps: list[BackoffStep] = []
        ranks = self._find_context_ranks(context)
        for order in range(len(ranks), 0, -1):
            rank = ranks[order - 1]
            if rank < 0:
                continue
            shortened = tuple(context[-order:])
            row = self._find_rank(self.levels[order], rank, word)
            if row >= 0:
                log_p = float(self.levels[order].log_p[row])
                return (*steps, BackoffStep(context=shortened, log_weight=log_p))
            weight = float(self.levels[order - 1].backoff[rank])
            steps.append(BackoffStep(context=shortened, log_weight=weight))
        return (*steps, BackoffStep(context=(), log_weight=float(self.levels[0].log_p[word])))

    def _find_context_ranks(self, context: Sequence[int]) -> list[int]:
        """The ranks of the last 1, 2, … words of a context; −1 if not seen."""
        max_length = min(len(context), self.config.order - 1)
        found: list[int] = []
        for length in range(1, max_length + 1):
            rank, *words = context[-length:]
            for level, word in zip(self.levels[1:], words, strict=False):
                rank = self._find_rank(level, rank, word)
            found.append(rank)
        return found

    def _find_rank(self, level: Level, context: int, word: int) -> int:
        if context < 0:
            return -1
        return int(find_ranks(level.keys, np.array([context << self.config.bits | word]))[0])


def find_ranks(keys: Ints, wanted: Ints) -> Ints:
    """The index of each of `wanted` in ascending `keys`; −1 if it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(wanted)  # searching in order makes better use of the cache
    ordered = wanted[order]
    indices = np.minimum(np.searchsorted(keys, ordered), len(keys) - 1)
    found = np.empty(len(wanted), dtype=np.int64)
    found[order] = np.where(keys[indices] == ordered, indices, -1)
    return found
