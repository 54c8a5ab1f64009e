"""The alignment between the characters, words and tokens of a text or a pair of texts."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, TypeVar

import tokenizers

from cloze.results import Result

T = TypeVar("T")
TokenRanges = tuple[tuple[range, ...], tuple[range, ...]]  # of the text and of its pair


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAlignment(Result):
    """The tokens of a text, or of a text and its pair (sequences 0 and 1).

    Offsets are character positions in the original text, as Python counts them; words are numbered
    within their own text. Special tokens that the tokenizer adds belong to no word and no sequence.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    words: list[int | None]
    type_ids: list[int]
    sequence_ids: list[int | None]
    # which tokens of the whole text and of the whole pair are included, and how many are not
    kept_ranges: TokenRanges
    num_truncated: tuple[int, int] = (0, 0)
    truncated_chars: int = 0  # of the text and of its pair: from the first to the last token

    def __len__(self) -> int:
        return len(self.ids)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the tokens."""
        names = ("ids", "tokens", "offsets", "words", "type_ids")
        return {name: getattr(self, name) for name in names}

    def to_records(self) -> list[dict[str, Any]]:
        """A row per token."""
        columns = zip(*self.to_dict().values(), strict=True)
        return [
            {
                "token": token,
                "id": id_,
                "start": start,
                "end": end,
                "word": word,
                "type_id": type_id,
            }
            for id_, token, (start, end), word, type_id in columns
        ]

    @property
    def special_tokens_mask(self) -> list[bool]:
        """True for the special tokens that the tokenizer added."""
        return [sequence is None for sequence in self.sequence_ids]

    def token_range(self, sequence: int = 0) -> range:
        """Indices of all tokens of the text, or of the pair."""
        if sequence not in self.sequence_ids:
            return range(0)
        start = self.sequence_ids.index(sequence)
        return range(start, start + self.sequence_ids.count(sequence))

    def tokens_in_span(self, start: int, end: int, sequence: int = 0) -> range:
        """Indices of the tokens that overlap the characters from `start` up to `end`."""
        inside = self.token_range(sequence)
        if start >= end:
            return range(inside.start, inside.start)
        first = bisect_right(self.offsets, start, inside.start, inside.stop, key=lambda o: o[1])
        stop = bisect_left(self.offsets, end, first, inside.stop, key=lambda o: o[0])
        return range(first, stop)

    def word_spans(self, sequence: int = 0) -> list[tuple[int, int]]:
        """The character span of every word; of a truncated word, that of its remaining tokens."""
        words = groupby(self.token_range(sequence), lambda token: self.words[token])
        spans = [[self.offsets[token] for token in tokens] for _, tokens in words]
        return [(offsets[0][0], offsets[-1][1]) for offsets in spans]


def make_alignment(whole: tokenizers.Encoding, kept: TokenRanges | None = None) -> TokenAlignment:
    """The alignment of an encoding of the tokenizers library, or of the tokens to keep."""
    return next(select_parts(whole, [kept]))


def select_parts(
    whole: tokenizers.Encoding, parts: Iterable[TokenRanges | None]
) -> Iterator[TokenAlignment]:
    """Several alignments of one encoding: all of it (None) or the tokens to keep.

    Selecting tokens after encoding is correct for every post-processor, because post-processors
    add special tokens without looking at the others. The library copies a list on every access, so
    each list is read once.
    """
    sequence_ids: list[int | None] = whole.sequence_ids
    special, *texts = (
        [n for n, s in enumerate(sequence_ids) if s == which] for which in (None, 0, 1)
    )
    everything = TokenAlignment(
        ids=whole.ids,
        tokens=whole.tokens,
        offsets=whole.offsets,
        words=whole.word_ids,
        type_ids=whole.type_ids,
        sequence_ids=sequence_ids,
        kept_ranges=(_full_range(texts[0]), _full_range(texts[1])),
    )
    for kept in parts:
        if kept is None:
            yield everything
            continue
        selected = [
            tokens[span.start : span.stop]
            for tokens, spans in zip(texts, kept, strict=True)
            for span in spans
        ]
        yield _select(everything, sorted(chain(special, *selected)), kept)


def _full_range(tokens: list[int]) -> tuple[range, ...]:
    return (range(len(tokens)),) if tokens else ()


def _select(whole: TokenAlignment, indices: list[int], kept: TokenRanges) -> TokenAlignment:
    def take(column: list[T]) -> list[T]:
        return [column[n] for n in indices]

    removed = [
        sum(map(len, before)) - sum(map(len, now))
        for before, now in zip(whole.kept_ranges, kept, strict=True)
    ]
    offsets = [
        [whole.offsets[token] for token in whole.token_range(sequence)] if count else []
        for sequence, count in enumerate(removed)
    ]
    return TokenAlignment(
        ids=take(whole.ids),
        tokens=take(whole.tokens),
        offsets=take(whole.offsets),
        words=take(whole.words),
        type_ids=take(whole.type_ids),
        sequence_ids=take(whole.sequence_ids),
        kept_ranges=kept,
        num_truncated=(removed[0], removed[1]),
        truncated_chars=sum(map(count_removed_chars, offsets, kept)),
    )


def count_removed_chars(offsets: Sequence[tuple[int, int]], kept: Iterable[range]) -> int:
    """The number of characters in the runs of tokens between those that are kept."""
    edges = [0, *chain.from_iterable((span.start, span.stop) for span in kept), len(offsets)]
    runs = zip(edges[::2], edges[1::2], strict=True)
    return sum(offsets[stop - 1][1] - offsets[start][0] for start, stop in runs if start < stop)
