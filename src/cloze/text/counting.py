"""Count the words of a stream of text in bounded memory.

The stream is split into raw chunks at white space, which is cheap, and only the distinct chunks go
through the tokenizers library's normalizer and pre-tokenizer. These would split there in any case,
so words and counts are the same as if every text had been processed as a whole.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from cloze.errors import InputError
from cloze.progress import ProgressCallback
from cloze.text.checks import check_text
from cloze.text.words import IDEOGRAPHS

# `str.split` splits words at these control characters; BERT's text cleaning deletes them.
_CONTROL_CHARS = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
# White space as in the GPT-2 pattern: Python's `\s` has four more separators.
_CHUNK_WITH_SPACE = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")

MAX_WORDS = 5_000_000  # distinct raw words in memory while counting
_REPORT_EVERY = 10_000  # texts between two calls of `progress`


def split_bert_words(text: str, *, chinese: bool) -> list[str]:
    """Split a text at white space; with `chinese`, every ideograph is a chunk of its own."""
    if _CONTROL_CHARS.search(text):
        text = _CONTROL_CHARS.sub("", text)
    if chinese and not text.isascii():
        text = _IDEOGRAPH.sub(r" \g<0> ", text)
    return text.split()


def split_with_spaces(text: str, *, normalizer: Normalizer | None = None) -> list[str]:
    """Split a text into chunks with the white space before them, which byte-level BPE keeps.

    The text is normalized here, because a chunk of accents alone becomes empty, and the white space
    on both sides of it then belongs to one chunk.
    """
    return _CHUNK_WITH_SPACE.findall(normalizer.normalize_str(text) if normalizer else text)


def count_chunks(
    texts: Iterable[str],
    split: Callable[[str], Iterable[str]],
    *,
    max_words: int,
    progress: ProgressCallback | None = None,
) -> Counter[str]:
    """Count chunks, keeping at most `max_words` distinct ones after each text.

    Lossy counting (Manku and Motwani 2002) without their error terms: when the table is full, the
    rarest chunks are dropped, and the threshold rises by one each time. The count of a chunk is too
    low by at most the sum of the thresholds, so frequent chunks are never lost.
    """
    counts: Counter[str] = Counter()
    threshold = 0
    for number, text in enumerate(_check_texts(texts), 1):
        counts.update(split(text))
        if len(counts) > max_words:
            while len(counts) > max_words // 2:  # half at once, so that pruning is rare
                threshold += 1
                counts = Counter(
                    {chunk: count for chunk, count in counts.items() if count > threshold}
                )
        if progress and number % _REPORT_EVERY == 0:
            progress("texts counted", number, None)
    return counts


def count_words(
    chunks: Counter[str], pre_tokenizer: PreTokenizer, normalizer: Normalizer | None = None
) -> Counter[str]:
    """Count the words that the pre-tokenizer finds in the chunks."""
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        normalized = normalizer.normalize_str(chunk) if normalizer else chunk
        for word, _ in pre_tokenizer.pre_tokenize_str(normalized):
            words[word] += count
    return words


def count_characters(chunks: Counter[str], normalizer: Normalizer | None = None) -> Counter[str]:
    """Count the characters of words, or of chunks after normalization."""
    characters: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for character in normalizer.normalize_str(chunk) if normalizer else chunk:
            characters[character] += count
    return characters


def _check_texts(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise InputError(
            "expected a list of texts, got a single string",
            fix="pass a list of texts, or an open file, which yields its lines",
        )
    for number, text in enumerate(texts, 1):
        yield check_text(text, f"text {number:,}")
