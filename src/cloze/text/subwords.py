"""Learn which neighbouring symbols to merge, most frequent pair first (Sennrich et al. 2016).

All words lie in one array of symbols, linked to their neighbours, so that a merge rewrites all its
places at once. Counts of pairs are kept up to date from those places alone. Every choice follows
from counts and, among equals, from ids, never from the order of the words.

WordPiece here means these merges with a `##` before what continues a word, as in the tokenizers
library. Schuster and Nakajima (2012) take the pair that raises the likelihood of the text most, but
the code that made the published vocabularies was never released, this needs no second count, and
both are read the same way: the longest piece that fits comes first.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from cloze.text.counting import Told

_REPORT = 500  # merges between two calls of `progress`
_BITS = 32  # a pair of ids (a, b) is the number a << 32 | b, so pairs compare as their ids do

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subwords:
    """Pieces in the order of their ids, the symbols first; and the merges that made the others."""

    pieces: list[str]
    merges: list[tuple[str, str]]


def learn_merges(
    words: Mapping[str, int],
    symbols: Sequence[str],
    *,
    room: int,
    min_count: int,
    prefix: str = "",
    progress: Told | None = None,
) -> Subwords:
    """At most `room` pieces: the symbols, then what was seen `min_count` times when it was made.

    A symbol is a character, with the prefix or without. A word that the symbols cannot spell takes
    no part.
    """
    table = _Table(words, symbols, prefix)
    pieces, merges = list(symbols), []
    known = {piece: number for number, piece in enumerate(pieces)}
    heap = [(-count, pair) for pair, count in table.counts.items() if count >= min_count]
    heapify(heap)
    while heap and len(pieces) < room:
        count, pair = heappop(heap)
        now = table.counts.get(pair, 0)
        if now != -count:
            # Too high: put back where it belongs. Too low: a higher twin came by before.
            if min_count <= now < -count:
                heappush(heap, (-now, pair))
            continue
        left, right = pieces[pair >> _BITS], pieces[pair & (1 << _BITS) - 1]
        merges.append((left, right))
        piece = left + right.removeprefix(prefix)
        # A word that begins with the prefix itself may spell a piece twice: it keeps its first id.
        number = known.setdefault(piece, len(pieces))
        if number == len(pieces):
            pieces.append(piece)
        for grown in table.merge(pair, number):
            if table.counts[grown] >= min_count:
                heappush(heap, (-table.counts[grown], grown))
        if progress and len(merges) % _REPORT == 0:
            progress("merging", len(pieces), room)
    return Subwords(pieces=pieces, merges=merges)


class _Table:
    """The words as one linked array of symbols. Position `end` stands for "no neighbour"."""

    def __init__(self, words: Mapping[str, int], symbols: Sequence[str], prefix: str) -> None:
        numbers, lengths, counts = _flatten(words, symbols, prefix)
        self.end = len(numbers)
        self.symbol = np.append(numbers, -1)
        self.weight = np.append(np.repeat(counts, lengths), 0)
        place = np.arange(self.end + 1)
        first = _starts(lengths)
        self.left = np.where(first, self.end, place - 1)
        self.right = np.append(np.where(first[1:], self.end, place[1:]), self.end)
        order = np.argsort(numbers, kind="stable")
        borders = np.searchsorted(numbers[order], np.arange(1, len(symbols)))
        self.places: list[Ints] = np.split(order, borders)
        starts = np.flatnonzero(self.right[:-1] != self.end)
        pairs = _pairs(self.symbol[starts], self.symbol[self.right[starts]])
        self.counts = dict(zip(*_tally(pairs, self.weight[starts]), strict=True))

    def merge(self, pair: int, merged: int) -> list[int]:
        """Write `merged` wherever `pair` stands, and return the pairs that became more frequent."""
        first, second = pair >> _BITS, pair & (1 << _BITS) - 1
        at = self._find(first, second)
        to = self.right[at]
        if first == second:  # in "aaa" the first two are taken: every other one of each run
            run = np.append(False, at[1:] == to[:-1])
            number = np.arange(len(at))
            taken = (number - np.maximum.accumulate(np.where(run, 0, number))) % 2 == 0
            at, to = at[taken], to[taken]
        before, after, weight = self.left[at], self.right[to], self.weight[at]
        # Where two places touch ("abab"), the pair between them belongs to the one on the left.
        leads = (before != self.end) & np.append(True, before[1:] != to[:-1])
        trails = after != self.end
        gone = [
            _pairs(self.symbol[before[leads]], self.symbol[at[leads]]),
            _pairs(self.symbol[to[trails]], self.symbol[after[trails]]),
        ]
        self.symbol[at], self.symbol[to] = merged, -1
        self.right[at], self.left[after] = after, at
        come = [
            _pairs(self.symbol[before[leads]], self.symbol[at[leads]]),
            _pairs(self.symbol[at[trails]], self.symbol[after[trails]]),
        ]
        self._place(merged, at)
        weights = np.concatenate([weight[leads], weight[trails]])
        changes = _tally(np.concatenate(gone + come), np.concatenate([-weights, weights]))
        del self.counts[pair]
        return self._update(pair, changes)

    def _find(self, first: int, second: int) -> Ints:
        """Where the pair starts, in order, by the places of its rarer symbol; stale ones go."""
        rarer = first if len(self.places[first]) <= len(self.places[second]) else second
        places = self.places[rarer]
        places = self.places[rarer] = places[self.symbol[places] == rarer]
        if rarer == first:
            return places[self.symbol[self.right[places]] == second]
        starts = self.left[places]
        return starts[self.symbol[starts] == first]

    def _place(self, symbol: int, at: Ints) -> None:
        if symbol == len(self.places):
            self.places.append(at)
        else:
            self.places[symbol] = np.sort(np.append(self.places[symbol], at))

    def _update(self, merged: int, changes: tuple[list[int], list[int]]) -> list[int]:
        grown = []
        for pair, change in zip(*changes, strict=True):
            if pair == merged or not change:
                continue
            count = self.counts.get(pair, 0) + change
            if count:
                self.counts[pair] = count
            else:
                del self.counts[pair]
            if change > 0:
                grown.append(pair)
        return grown


def _flatten(
    words: Mapping[str, int], symbols: Sequence[str], prefix: str
) -> tuple[Ints, Ints, Ints]:
    """The symbols of all words in one row, the lengths of the words, and their counts."""
    spelled = {word: count for word, count in words.items() if word}
    text = "".join(spelled).encode("utf-32-le")
    points = np.frombuffer(text, np.uint32)
    lengths = np.fromiter(map(len, spelled), np.int64, len(spelled))
    counts = np.fromiter(spelled.values(), np.int64, len(spelled))
    first = _starts(lengths)[:-1]
    starting, continuing = _lookup(symbols, ""), _lookup(symbols, prefix)
    numbers = np.where(first, starting[points], continuing[points])
    whole = np.minimum.reduceat(numbers, np.flatnonzero(first)) >= 0 if len(numbers) else first
    return numbers[np.repeat(whole, lengths)], lengths[whole], counts[whole]


def _lookup(symbols: Sequence[str], prefix: str) -> Ints:
    """Code point -> number of the symbol that is this character after the prefix, or -1."""
    table = np.full(sys.maxunicode + 1, -1, np.int64)
    for number, symbol in enumerate(symbols):
        if len(symbol) == len(prefix) + 1:
            table[ord(symbol[-1])] = number
    return table


def _starts(lengths: Ints) -> NDArray[np.bool_]:
    """True where a word starts in the row of all words, and once more where the row ends."""
    starts = np.zeros(lengths.sum() + 1, bool)
    starts[np.append(0, np.cumsum(lengths))] = True
    return starts


def _pairs(left: Ints, right: Ints) -> Ints:
    return left << _BITS | right


def _tally(keys: Ints, weights: Ints) -> tuple[list[int], list[int]]:
    """The distinct keys and the sum of the weights of each."""
    if not len(keys):
        return [], []
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[starts].tolist(), np.add.reduceat(weights[order], starts).tolist()
