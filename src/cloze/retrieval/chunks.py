"""Documents → chunks: whole sentences up to a number of tokens, with overlap and offsets."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cloze.text.sentences import find_sentence_spans

CountTokens = Callable[[Sequence[str]], Sequence[int]]
_WORD_END = re.compile(r"\s+|(?<=[^\x00-\u2e7f])")  # also between ideographs


class Span(NamedTuple):
    """Characters of a text."""

    start: int
    end: int


def split_chunks(text: str, count_tokens: CountTokens, size: int, overlap: int) -> list[Span]:
    """Split a text into chunks of whole sentences, which cover all of it except white space.

    A sentence that is longer than a chunk is split between words, and a word that is longer is
    split inside.

    Args:
        text: the text.
        count_tokens: counts the tokens of several texts.
        size: maximum number of tokens of a chunk.
        overlap: maximum number of tokens that a chunk repeats from the end of the previous one;
            only whole sentences are repeated.
    """
    spans = [Span(*one) for one in find_sentence_spans(text)]
    counts = list(count_tokens([text[start:end] for start, end in spans]))
    parts: list[tuple[Span, int]] = []
    for span, count in zip(spans, counts, strict=True):
        if count <= size:
            parts.append((span, count))
        else:
            parts += _split_sentence(text, span, count, size)
    return _join_parts(parts, size, overlap)


def _join_parts(parts: Sequence[tuple[Span, int]], size: int, overlap: int) -> list[Span]:
    """Join parts while they fit; the next chunk starts with the last ones again."""
    chunks: list[Span] = []
    first, total = 0, 0
    for number, (_, count) in enumerate(parts):
        if number > first and total + count > size:
            chunks.append(Span(parts[first][0].start, parts[number - 1][0].end))
            first, total = _find_overlap(parts, first, number, min(overlap, size - count))
        total += count
    if parts:
        chunks.append(Span(parts[first][0].start, parts[-1][0].end))
    return chunks


def _find_overlap(
    parts: Sequence[tuple[Span, int]], previous: int, number: int, overlap: int
) -> tuple[int, int]:
    """The first part before `number` that is repeated, and the tokens that are.

    It is after the first part of the previous chunk.
    """
    first, total = number, 0
    while first > previous + 1 and total + parts[first - 1][1] <= overlap:
        first -= 1
        total += parts[first][1]
    return first, total


def _split_sentence(text: str, span: Span, count: int, size: int) -> list[tuple[Span, int]]:
    """Parts of a sentence of about equal length, split after words where that is possible."""
    length = -(-(span.end - span.start) // -(-count // size))
    found: list[tuple[Span, int]] = []
    start = span.start
    while start < span.end:
        end = min(start + length, span.end)
        if end < span.end:
            ends = (one.end() for one in _WORD_END.finditer(text, start + length // 2, end))
            end = max((one for one in ends if one > start), default=end)
        kept = text[start:end]
        inner = Span(start + len(kept) - len(kept.lstrip()), start + len(kept.rstrip()))
        if inner.end > inner.start:
            found.append((inner, min(size, -(-count * (end - start) // (span.end - span.start)))))
        start = end
    return found
