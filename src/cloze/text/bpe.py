"""Byte-pair encoding: merge adjacent symbols, the most frequent pair first (Sennrich et al. 2016).

All words are in one array of symbols, each linked to its neighbours, so that a merge rewrites all
its occurrences at once. The counts of pairs are updated from those positions alone. Every choice
depends on counts and, for ties, on ids, never on the order of the words.

WordPiece vocabularies are trained with the same merges, with a `##` prefix on tokens that continue
a word, as in the tokenizers library. Schuster and Nakajima (2012) choose the pair that increases
the likelihood of the text most, but the code behind the published vocabularies was never released,
merging by frequency needs no second count, and both vocabularies are applied the same way: the
longest matching token first.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from cloze.progress import ProgressCallback

_REPORT_EVERY = 500  # merges between two calls of `progress`
_BITS = 32  # a pair of ids (a, b) is stored as a << 32 | b, so pairs are ordered like their ids

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subwords:
    """Tokens in the order of their ids, symbols first; and the merges that formed the others."""

    tokens: list[str]
    merges: list[tuple[str, str]]


def learn_merges(
    words: Mapping[str, int],
    symbols: Sequence[str],
    *,
    vocab_size: int,
    min_count: int,
    prefix: str = "",
    progress: ProgressCallback | None = None,
) -> Subwords:
    """At most `vocab_size` tokens: the symbols, then merged tokens seen at least `min_count` times.

    A symbol is a character, with or without the prefix. Words with other characters are ignored.
    """
    table = _SymbolTable(words, symbols, prefix)
    tokens, merges = list(symbols), []
    known = {token: number for number, token in enumerate(tokens)}
    heap = [(-count, pair) for pair, count in table.counts.items() if count >= min_count]
    heapify(heap)
    while heap and len(tokens) < vocab_size:
        count, pair = heappop(heap)
        now = table.counts.get(pair, 0)
        if now != -count:
            # Outdated: if the count fell, put the pair back; if it rose, a newer entry exists.
            if min_count <= now < -count:
                heappush(heap, (-now, pair))
            continue
        left, right = tokens[pair >> _BITS], tokens[pair & (1 << _BITS) - 1]
        merges.append((left, right))
        token = left + right.removeprefix(prefix)
        # A word that begins with the prefix itself may form a token twice: it keeps its first id.
        number = known.setdefault(token, len(tokens))
        if number == len(tokens):
            tokens.append(token)
        for increased in table.merge(pair, number):
            if table.counts[increased] >= min_count:
                heappush(heap, (-table.counts[increased], increased))
        if progress and len(merges) % _REPORT_EVERY == 0:
            progress("tokens learned", len(tokens), vocab_size)
    return Subwords(tokens=tokens, merges=merges)


class _SymbolTable:
    """The words as one linked array of symbols. Position `end` means "no neighbour"."""

    def __init__(self, words: Mapping[str, int], symbols: Sequence[str], prefix: str) -> None:
        numbers, lengths, counts = _flatten_words(words, symbols, prefix)
        self.end = len(numbers)
        self.symbol = np.append(numbers, -1)
        self.weight = np.append(np.repeat(counts, lengths), 0)
        position = np.arange(self.end + 1)
        first = _find_word_starts(lengths)
        self.left = np.where(first, self.end, position - 1)
        self.right = np.append(np.where(first[1:], self.end, position[1:]), self.end)
        order = np.argsort(numbers, kind="stable")
        borders = np.searchsorted(numbers[order], np.arange(1, len(symbols)))
        self.positions: list[Ints] = np.split(order, borders)
        starts = np.flatnonzero(self.right[:-1] != self.end)
        pairs = _make_pair_keys(self.symbol[starts], self.symbol[self.right[starts]])
        self.counts = dict(zip(*_sum_by_key(pairs, self.weight[starts]), strict=True))

    def merge(self, pair: int, merged: int) -> list[int]:
        """Replace every `pair` by `merged`, and return the pairs that became more frequent."""
        first, second = pair >> _BITS, pair & (1 << _BITS) - 1
        left = self._find(first, second)  # positions of the two symbols
        right = self.right[left]
        if first == second:  # in "aaa" the first two are merged: every other one of each run
            continues = np.append(False, left[1:] == right[:-1])
            number = np.arange(len(left))
            is_merged = (number - np.maximum.accumulate(np.where(continues, 0, number))) % 2 == 0
            left, right = left[is_merged], right[is_merged]
        before, after, weight = self.left[left], self.right[right], self.weight[left]
        # If two occurrences are adjacent ("abab"), the pair between them belongs to the left one.
        has_before = (before != self.end) & np.append(True, before[1:] != right[:-1])
        has_after = after != self.end
        removed = [
            _make_pair_keys(self.symbol[before[has_before]], self.symbol[left[has_before]]),
            _make_pair_keys(self.symbol[right[has_after]], self.symbol[after[has_after]]),
        ]
        self.symbol[left], self.symbol[right] = merged, -1
        self.right[left], self.left[after] = after, left
        added = [
            _make_pair_keys(self.symbol[before[has_before]], self.symbol[left[has_before]]),
            _make_pair_keys(self.symbol[left[has_after]], self.symbol[after[has_after]]),
        ]
        self._add_positions(merged, left)
        weights = np.concatenate([weight[has_before], weight[has_after]])
        changes = _sum_by_key(np.concatenate(removed + added), np.concatenate([-weights, weights]))
        del self.counts[pair]
        return self._update_counts(pair, changes)

    def _find(self, first: int, second: int) -> Ints:
        """Positions where the pair starts, found by its rarer symbol; stale ones are removed."""
        rarer = first if len(self.positions[first]) <= len(self.positions[second]) else second
        positions = self.positions[rarer]
        positions = self.positions[rarer] = positions[self.symbol[positions] == rarer]
        if rarer == first:
            return positions[self.symbol[self.right[positions]] == second]
        starts = self.left[positions]
        return starts[self.symbol[starts] == first]

    def _add_positions(self, symbol: int, positions: Ints) -> None:
        if symbol == len(self.positions):
            self.positions.append(positions)
        else:
            self.positions[symbol] = np.sort(np.append(self.positions[symbol], positions))

    def _update_counts(self, merged: int, changes: tuple[list[int], list[int]]) -> list[int]:
        increased = []
        for pair, change in zip(*changes, strict=True):
            if pair == merged or not change:
                continue
            count = self.counts.get(pair, 0) + change
            if count:
                self.counts[pair] = count
            else:
                del self.counts[pair]
            if change > 0:
                increased.append(pair)
        return increased


def _flatten_words(
    words: Mapping[str, int], symbols: Sequence[str], prefix: str
) -> tuple[Ints, Ints, Ints]:
    """The symbols of all words in one array, the lengths of the words, and their counts."""
    nonempty = {word: count for word, count in words.items() if word}
    text = "".join(nonempty).encode("utf-32-le")
    points = np.frombuffer(text, np.uint32)
    lengths = np.fromiter(map(len, nonempty), np.int64, len(nonempty))
    counts = np.fromiter(nonempty.values(), np.int64, len(nonempty))
    first = _find_word_starts(lengths)[:-1]
    starting, continuing = (
        _map_characters_to_ids(symbols, ""),
        _map_characters_to_ids(symbols, prefix),
    )
    numbers = np.where(first, starting[points], continuing[points])
    is_known = np.minimum.reduceat(numbers, np.flatnonzero(first)) >= 0 if len(numbers) else first
    return numbers[np.repeat(is_known, lengths)], lengths[is_known], counts[is_known]


def _map_characters_to_ids(symbols: Sequence[str], prefix: str) -> Ints:
    """Code point -> id of the symbol that is this character after the prefix, or -1."""
    table = np.full(sys.maxunicode + 1, -1, np.int64)
    for number, symbol in enumerate(symbols):
        if len(symbol) == len(prefix) + 1:
            table[ord(symbol[-1])] = number
    return table


def _find_word_starts(lengths: Ints) -> NDArray[np.bool_]:
    """True where a word starts in the array of all words, and at its end."""
    starts = np.zeros(lengths.sum() + 1, bool)
    starts[np.append(0, np.cumsum(lengths))] = True
    return starts


def _make_pair_keys(left: Ints, right: Ints) -> Ints:
    return left << _BITS | right


def _sum_by_key(keys: Ints, weights: Ints) -> tuple[list[int], list[int]]:
    """The distinct keys and the sum of weights of each."""
    if not len(keys):
        return [], []
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[starts].tolist(), np.add.reduceat(weights[order], starts).tolist()
