"""The windows of a long text, one after the other: only the tokens of a few are in memory."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from cloze.errors import InputError
from cloze.text.alignment import TokenAlignment
from cloze.text.long_texts import EncodedPart, Gap, LongTextRules
from cloze.text.truncation import iterate_max_context_tokens, split_windows

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Overlapping windows that cover a text; of a long text they can be iterated only once."""

    spans: Sequence[range]  # the tokens of the text in each window
    alignments: Iterator[TokenAlignment]

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[TokenAlignment]:
        return self.alignments

    def iterate_own(self) -> Iterator[tuple[TokenAlignment, range]]:
        """Each window of a single text, and which of its tokens have the most context in it.

        Every token belongs to one window, in order.
        """
        for window, owned in zip(self, iterate_max_context_tokens(self.spans), strict=True):
            start = window.token_range().start + (owned.index(True) if True in owned else 0)
            yield window, range(start, start + owned.count(True))


def check_fixed_tokens(fixed: int, max_length: int) -> None:
    """Raise if no token of a text fits into its windows."""
    if fixed >= max_length:
        raise InputError(
            f"every window contains {fixed:,} fixed tokens, but max_length is {max_length:,}",
            fix="shorten the first text, or increase max_length",
        )


def iterate_windows(
    rules: LongTextRules,
    text: str,
    frame: TokenAlignment,
    max_length: int,
    overlap: int,
) -> Windows:
    """The windows of a text, which is tokenized twice: first its tokens are counted.

    `frame` is the encoding of "a" with special tokens, or of the first text and "a": the tokens of
    a window replace those of "a". The characters that a window leaves out are not counted.
    """
    is_pair = 1 in frame.sequence_ids
    inside = frame.token_range(int(is_pair))
    fixed = len(frame) - len(inside)
    check_fixed_tokens(fixed, max_length)
    short = rules.collapse(text)
    total = rules.count_tokens(short.text)
    spans = split_windows(total, max_length - fixed, overlap)
    tokens = _TokenStream(rules.iterate_parts(short.text), short.gaps)

    def iterate() -> Iterator[TokenAlignment]:
        for span in spans:
            some = tokens.take(span)
            removed = total - len(span)
            first = range(frame.sequence_ids.count(0))
            yield TokenAlignment(
                ids=_insert(frame.ids, inside, some.ids),
                tokens=_insert(frame.tokens, inside, some.tokens),
                offsets=_insert(frame.offsets, inside, some.offsets),
                words=_insert(frame.words, inside, some.words),
                type_ids=_insert(
                    frame.type_ids, inside, [frame.type_ids[inside.start]] * len(span)
                ),
                sequence_ids=_insert(frame.sequence_ids, inside, [int(is_pair)] * len(span)),
                kept_ranges=((first,), (span,)) if is_pair else ((span,), ()),
                num_truncated=(0, removed) if is_pair else (removed, 0),
            )

    return Windows(spans=spans, alignments=iterate())


@dataclass(kw_only=True)
class _TokenColumns:
    """Tokens of a text, with offsets and word numbers of the whole text."""

    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    words: list[int | None] = field(default_factory=list)

    def slice(self, start: int, stop: int) -> "_TokenColumns":
        return _TokenColumns(
            ids=self.ids[start:stop],
            tokens=self.tokens[start:stop],
            offsets=self.offsets[start:stop],
            words=self.words[start:stop],
        )


class _TokenStream:
    """The tokens of a text, read from its parts in order."""

    def __init__(self, parts: Iterator[EncodedPart], gaps: Sequence[Gap]) -> None:
        self._parts = parts
        self._gap_positions = [gap.position for gap in gaps]
        self._gap_chars = [0, *accumulate(gap.chars for gap in gaps)]
        self._first = 0  # index of the first token in the columns
        self._columns = _TokenColumns()
        self._num_words = 0

    def take(self, span: range) -> _TokenColumns:
        """The tokens of a span, which starts no earlier than the last one."""
        self._columns = self._columns.slice(span.start - self._first, len(self._columns.ids))
        self._first = span.start
        while len(self._columns.ids) < len(span):
            self._read(next(self._parts))
        return self._columns.slice(0, len(span))

    def _read(self, part: EncodedPart) -> None:
        skip, encoding = part.num_tokens_before, part.encoding
        columns, words = self._columns, encoding.word_ids[skip:]
        columns.ids += encoding.ids[skip:]
        columns.tokens += encoding.tokens[skip:]
        shift = part.start - part.num_chars_before
        offsets = encoding.offsets[skip:]
        columns.offsets += (
            [
                (self._restore_start(start + shift), self._restore_end(end + shift))
                for start, end in offsets
            ]
            if self._gap_positions
            else [(start + shift, end + shift) for start, end in offsets]
        )
        more = self._num_words - part.num_words_before
        columns.words += [None if word is None else word + more for word in words]
        last = next((n for n in reversed(words) if n is not None), -1 - more)
        self._num_words = more + 1 + last

    def _restore_start(self, position: int) -> int:
        return position + self._gap_chars[bisect_right(self._gap_positions, position)]

    def _restore_end(self, position: int) -> int:
        return position + self._gap_chars[bisect_left(self._gap_positions, position)]


def _insert(column: list[T], inside: range, values: Sequence[T]) -> list[T]:
    return [*column[: inside.start], *values, *column[inside.stop :]]
