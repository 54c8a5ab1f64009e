"""Count the words of a stream of text in bounded memory.

The stream is cut into raw chunks between white space, which is cheap, and only the distinct chunks
go through the tokenizers library's normaliser and pre-tokenizer. The cuts lie where those would cut
in any case, so words and counts are the same as if every text had gone through whole.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from cloze.errors import InputError
from cloze.text.guard import check_text
from cloze.text.ideographs import IDEOGRAPHS

# Who is told how far something has come: what is counted, how many are done, of how many (None: not
# known).
Told = Callable[[str, int, int | None], object]

# `str.split` breaks words at these control characters; BERT's cleaning deletes them.
_DELETED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")
# White space as the GPT-2 pattern knows it: Python's `\s` has four separators more.
_SPACED = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")

MAX_WORDS = 5_000_000  # different raw words to hold while counting
_REPORT = 10_000  # texts between two calls of `progress`


def split_bert(text: str, *, chinese: bool) -> list[str]:
    """The chunks between white space; with `chinese` every ideograph is one of its own."""
    if _DELETED.search(text):
        text = _DELETED.sub("", text)
    if chinese and not text.isascii():
        text = _IDEOGRAPH.sub(r" \g<0> ", text)
    return text.split()


def split_spaced(text: str, *, normalizer: Normalizer | None = None) -> list[str]:
    """The chunks with the white space before them, which byte-level BPE keeps in its words.

    Normalised here, because a chunk of accents alone leaves nothing, and the white space on both
    sides of it becomes one stretch.
    """
    return _SPACED.findall(normalizer.normalize_str(text) if normalizer else text)


def count_chunks(
    texts: Iterable[str],
    split: Callable[[str], Iterable[str]],
    *,
    max_words: int,
    progress: Told | None = None,
) -> Counter[str]:
    """Count chunks, holding at most `max_words` different ones from one text to the next.

    Lossy counting (Manku and Motwani 2002) without their error terms: when the table is full, the
    rarest leave, and the bar for staying rises by one each time. A chunk can lose no more than the
    sum of the bars from its count, so what is frequent in the whole stream is never lost.
    """
    counts: Counter[str] = Counter()
    bar = 0
    for number, text in enumerate(_checked(texts), 1):
        counts.update(split(text))
        if len(counts) > max_words:
            while len(counts) > max_words // 2:  # half at once, so that pruning stays seldom
                bar += 1
                counts = Counter({chunk: count for chunk, count in counts.items() if count > bar})
        if progress and number % _REPORT == 0:
            progress("counting", number, None)
    return counts


def count_words(
    chunks: Counter[str], pre_tokenizer: PreTokenizer, normalizer: Normalizer | None = None
) -> Counter[str]:
    """The words that the library makes of the chunks."""
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        normal = normalizer.normalize_str(chunk) if normalizer else chunk
        for word, _ in pre_tokenizer.pre_tokenize_str(normal):
            words[word] += count
    return words


def count_characters(chunks: Counter[str], normalizer: Normalizer | None = None) -> Counter[str]:
    """The characters of counted words or, of raw chunks, those that the normaliser leaves."""
    characters: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for character in normalizer.normalize_str(chunk) if normalizer else chunk:
            characters[character] += count
    return characters


def _checked(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise InputError(
            "a vocabulary is learned from many texts, this is a single one",
            fix="give a list of texts, or an open file, which gives its lines",
        )
    for number, text in enumerate(texts, 1):
        yield check_text(text, f"text {number:,}")
