"""The alignment between characters, words and pieces of one text or of a pair."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeVar

import tokenizers

T = TypeVar("T")
Kept = tuple[tuple[range, ...], tuple[range, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What a tokenizer made of a text, or of a text and its pair (sequences 0 and 1).

    Offsets are characters of the original text, as Python counts them; words are numbered within
    their own text. Special tokens that the tokenizer adds belong to no word and to no sequence.
    """

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]
    words: list[int | None]
    type_ids: list[int]
    sequences: list[int | None]
    # Which pieces of the whole text and of the whole pair are here, and how many are not.
    kept: Kept
    cut: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def special(self) -> list[bool]:
        """True for the special tokens that the tokenizer added."""
        return [sequence is None for sequence in self.sequences]

    def pieces_of(self, sequence: int = 0) -> range:
        """All pieces of the text, or of the pair."""
        if sequence not in self.sequences:
            return range(0)
        start = self.sequences.index(sequence)
        return range(start, start + self.sequences.count(sequence))

    def pieces_between(self, start: int, end: int, sequence: int = 0) -> range:
        """The pieces that share a character with the stretch from `start` up to `end`."""
        inside = self.pieces_of(sequence)
        if start >= end:
            return range(inside.start, inside.start)
        first = bisect_right(self.offsets, start, inside.start, inside.stop, key=lambda o: o[1])
        stop = bisect_left(self.offsets, end, first, inside.stop, key=lambda o: o[0])
        return range(first, stop)

    def word_spans(self, sequence: int = 0) -> list[tuple[int, int]]:
        """The characters of every word, as far as it was kept."""
        words = groupby(self.pieces_of(sequence), lambda piece: self.words[piece])
        spans = [[self.offsets[piece] for piece in pieces] for _, pieces in words]
        return [(offsets[0][0], offsets[-1][1]) for offsets in spans]


def from_library(whole: tokenizers.Encoding, kept: Kept | None = None) -> Encoding:
    """Our record of the library's encoding, with its special tokens and the pieces it keeps."""
    return next(parts_of(whole, [kept]))


def parts_of(whole: tokenizers.Encoding, parts: Iterable[Kept | None]) -> Iterator[Encoding]:
    """Such records of one encoding: all of it (None) or the pieces that are kept.

    Taking pieces out of the finished encoding is right for every post-processor, because none of
    them looks at the pieces that it frames. The library makes a list anew whenever it is asked for
    one, so each is asked for once, however many parts there are.
    """
    sequences: list[int | None] = whole.sequence_ids
    special, *texts = ([n for n, s in enumerate(sequences) if s == which] for which in (None, 0, 1))
    everything = Encoding(
        ids=whole.ids,
        pieces=whole.tokens,
        offsets=whole.offsets,
        words=whole.word_ids,
        type_ids=whole.type_ids,
        sequences=sequences,
        kept=(_all_of(texts[0]), _all_of(texts[1])),
    )
    for kept in parts:
        if kept is None:
            yield everything
            continue
        staying = [
            own[span.start : span.stop]
            for own, spans in zip(texts, kept, strict=True)
            for span in spans
        ]
        yield _taken(everything, sorted(chain(special, *staying)), kept)


def _all_of(pieces: list[int]) -> tuple[range, ...]:
    return (range(len(pieces)),) if pieces else ()


def _taken(whole: Encoding, stay: list[int], kept: Kept) -> Encoding:
    def take(column: list[T]) -> list[T]:
        return [column[n] for n in stay]

    left_out = [
        sum(map(len, before)) - sum(map(len, now))
        for before, now in zip(whole.kept, kept, strict=True)
    ]
    return Encoding(
        ids=take(whole.ids),
        pieces=take(whole.pieces),
        offsets=take(whole.offsets),
        words=take(whole.words),
        type_ids=take(whole.type_ids),
        sequences=take(whole.sequences),
        kept=kept,
        cut=(left_out[0], left_out[1]),
    )
