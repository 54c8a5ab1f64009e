"""Count the words of a stream of text in bounded memory.

The stream is cut into raw chunks between white space, which is cheap, and only the distinct chunks go
through the tokenizers library's normaliser and pre-tokenizer. The cuts lie where those would cut in any
case, so the words and their counts are the same as if every text had gone through whole.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from tokenizers import normalizers, pre_tokenizers

from cloze.errors import InputError

Progress = Callable[[str, int, int | None], None]  # stage, done, of how many (None: unknown)
Split = Callable[[str], list[str]]

# `str.split` breaks words at these control characters, BERT's cleaning deletes them.
_DELETED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# The blocks of ideographs that BERT's normaliser puts spaces around.
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df]")
# White space as the GPT-2 pattern sees it: Python's `\s` takes four separators more.
_SPACED = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")
_JOINABLE = re.compile(r"[^\S\x1c-\x1f].*[\S\x1c-\x1f]", re.DOTALL)

_BATCH = 4096  # chunks that go through the library in one call
_REPORT = 10_000  # texts between two calls of `progress`


def split_bert(text: str, *, chinese: bool) -> list[str]:
    """The chunks between white space; with `chinese` every ideograph is one of its own."""
    if _DELETED.search(text):
        text = _DELETED.sub("", text)
    if chinese and not text.isascii():
        text = _IDEOGRAPH.sub(r" \g<0> ", text)
    return text.split()


def split_spaced(text: str) -> list[str]:
    """The chunks with the white space before them, which byte-level BPE keeps in its words."""
    return _SPACED.findall(text)


def count_chunks(
    texts: Iterable[str], split: Split, *, max_words: int, progress: Progress | None = None
) -> Counter[str]:
    """Count chunks, never holding many more than `max_words` different ones.

    Lossy counting (Manku and Motwani 2002) without their error terms: when the table is full the rarest
    chunks leave, and the bar rises by one each time. What leaves is rare up to that moment, and a chunk
    that is frequent over the whole stream loses at most the sum of the bars from its count.
    """
    counts: Counter[str] = Counter()
    bar = 0
    for number, text in enumerate(texts, 1):
        counts.update(split(text))
        while len(counts) > max_words:
            bar += 1
            counts = Counter({chunk: n for chunk, n in counts.items() if n > bar})
        if progress and number % _REPORT == 0:
            progress("counting", number, None)
    return counts


def count_words(
    chunks: Counter[str],
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
    *,
    spaced: bool,
) -> Counter[str]:
    """The words that the library makes of the chunks; `spaced` chunks carry their white space."""
    words: Counter[str] = Counter()
    for count, text in _joined(chunks, spaced=spaced):
        normal = normalizer.normalize_str(text) if normalizer else text
        for word, _ in pre_tokenizer.pre_tokenize_str(normal):
            words[word] += count
    return words


def count_characters(
    texts: Iterable[str],
    normalizer: normalizers.Normalizer | None,
    progress: Progress | None = None,
) -> Counter[str]:
    """The characters of the normalised texts, white space included."""
    raw: Counter[str] = Counter()
    for number, text in enumerate(texts, 1):
        raw.update(text)
        if progress and number % _REPORT == 0:
            progress("counting", number, None)
    characters: Counter[str] = Counter()
    for character, count in raw.items():
        # one at a time is right: the normaliser decomposes, strips and lowers, it never composes
        for part in normalizer.normalize_str(character) if normalizer else character:
            characters[part] += count
    return characters


def _joined(chunks: Counter[str], *, spaced: bool) -> Iterator[tuple[int, str]]:
    """Texts of many chunks with the same count, because one call of the library costs as much as ten chunks."""
    same: dict[int, list[str]] = {}
    for chunk, count in chunks.items():
        if spaced and not _JOINABLE.fullmatch(chunk):
            yield count, chunk
        else:
            same.setdefault(count, []).append(chunk)
    glue = "" if spaced else " "
    for count, group in same.items():
        for start in range(0, len(group), _BATCH):
            yield count, glue.join(group[start : start + _BATCH])
