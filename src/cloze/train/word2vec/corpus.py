"""A corpus of word ids on disk: four bytes per word, memory-mapped, read in chunks of sentences.

A word is a sequence of letters and digits, with apostrophes inside it ("don't"); every ideograph is
a word. Text that is tokenized already is split at spaces: `kind="spaced"`.
A sentence is a row of the source (a line or a paragraph): windows do not cross its ends. Words
outside the vocabulary are skipped.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError
from cloze.progress import ProgressCallback
from cloze.text.counting import count_chunks
from cloze.text.word_tokenizer import JOIN
from cloze.text.words import PLAIN_WORD, WORD
from cloze.train.config import Word2VecVocabulary

IDS, ENDS = "ids.i32", "ends.i64"
CHUNK = 10_000  # words between two updates of the learning rate, as in gensim and word2vec.c
_BUFFER = 1 << 20  # words between two writes
MAX_COUNTED = 10_000_000  # distinct words or pairs of words in memory while counting

Split = Callable[[str], list[str]]
Texts = Callable[[], Iterable[str]]  # starts from the beginning each time


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Words by descending count, and the phrases among them."""

    words: tuple[str, ...]
    counts: NDArray[np.int64]
    phrases: Sequence[frozenset[str]] = ()  # pairs that each pass joins, such as "new york"

    def splitter(self, config: Word2VecVocabulary) -> Split:
        """A function that splits text into words and phrases."""
        return partial(split_text, config=config, phrases=self.phrases)


def split_text(
    line: str, *, config: Word2VecVocabulary, phrases: Sequence[frozenset[str]] = ()
) -> list[str]:
    """The words of a line; the words of a phrase are joined by `_`."""
    if config.lowercase:
        line = line.lower()
    if config.kind == "spaced":
        words = line.split()
    else:
        words = (PLAIN_WORD if line.isascii() else WORD).findall(line)
    for pairs in phrases:
        words = join_phrases(words, pairs)
    return words


def join_phrases(words: list[str], pairs: frozenset[str]) -> list[str]:
    """Join neighbouring words that are a phrase, from the left."""
    joined: list[str] = []
    free = False  # whether the last word may still be part of a phrase
    for word in words:
        if free and f"{joined[-1]} {word}" in pairs:
            joined[-1] = f"{joined[-1]}{JOIN}{word}"
            free = False
        else:
            joined.append(word)
            free = True
    return joined


def count_words(
    texts: Texts, config: Word2VecVocabulary, progress: ProgressCallback | None = None
) -> Vocabulary:
    """Count words in one pass over the texts, after one pass for each round of phrases."""
    phrases: list[frozenset[str]] = []
    for _ in range(config.phrases):
        split = partial(split_text, config=config, phrases=tuple(phrases))
        both = count_chunks(texts(), partial(_with_pairs, split), max_words=MAX_COUNTED)
        phrases.append(find_phrases(both, config))
    split = partial(split_text, config=config, phrases=tuple(phrases))
    counts = count_chunks(texts(), split, max_words=MAX_COUNTED, progress=progress)
    frequent = sorted(
        ((word, times) for word, times in counts.items() if times >= config.min_count),
        key=lambda entry: (-entry[1], entry[0]),
    )[: config.size]
    if len(frequent) < 2:  # noqa: PLR2004
        raise InputError(
            f"only {len(frequent)} words occur at least {config.min_count} times (min_count)",
            fix="give more text, or lower min_count",
        )
    words, times = zip(*frequent, strict=True)
    return Vocabulary(words=words, counts=np.array(times, np.int64), phrases=tuple(phrases))


def find_phrases(counts: Counter[str], config: Word2VecVocabulary) -> frozenset[str]:
    """Pairs that occur together far more often than expected by chance.

    Mikolov et al. 2013, §4: (count(ab) − δ) / (count(a) · count(b)), δ = min_count, which
    word2phrase.c multiplies by the number of words.
    """
    total = sum(times for word, times in counts.items() if " " not in word)
    found = set()
    for pair, times in counts.items():
        if " " in pair and times >= config.min_count:
            a, b = pair.split(" ")
            rare = counts[a] < config.min_count or counts[b] < config.min_count
            above = (times - config.min_count) * total / max(counts[a] * counts[b], 1)
            if not rare and above > config.phrase_threshold:
                found.add(pair)
    return frozenset(found)


def _with_pairs(split: Split, line: str) -> list[str]:
    words = split(line)
    return words + [f"{a} {b}" for a, b in pairwise(words)]


@dataclass(frozen=True, kw_only=True)
class EncodedCorpus:
    """A corpus on disk."""

    vocabulary: Vocabulary
    ids: NDArray[np.int32]
    ends: NDArray[np.int64]

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, int]]:
        """Ranges of sentences with about `size` words each."""
        first = 0
        while first < len(self.ends):
            begin = int(self.ends[first - 1]) if first else 0
            last = int(np.searchsorted(self.ends, begin + size, "left")) + 1
            yield first, min(last, len(self.ends))
            first = last

    def read(self, first: int, last: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The word ids of the sentences first … last − 1, and the end of each sentence."""
        begin = int(self.ends[first - 1]) if first else 0
        ends = np.array(self.ends[first:last], np.int64)
        return np.array(self.ids[begin : ends[-1]], np.int32), ends - begin


def encode_corpus(
    texts: Texts,
    config: Word2VecVocabulary,
    folder: Path,
    *,
    progress: ProgressCallback | None = None,
) -> EncodedCorpus:
    """Count the words and write the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = count_words(texts, config, progress)
    if _write(texts, vocabulary, config, folder, progress) != vocabulary.counts.sum():
        raise InputError(
            "the text has changed while it was read", fix="use files that do not change"
        )
    ids = np.memmap(folder / IDS, np.int32, "r")
    ends = np.memmap(folder / ENDS, np.int64, "r")
    return EncodedCorpus(vocabulary=vocabulary, ids=ids, ends=ends)


def _write(
    texts: Texts,
    vocabulary: Vocabulary,
    config: Word2VecVocabulary,
    folder: Path,
    progress: ProgressCallback | None,
) -> int:
    """Write the corpus; returns the number of words."""
    split = vocabulary.splitter(config)
    number = {word: row for row, word in enumerate(vocabulary.words)}
    total, done, ids, ends = int(vocabulary.counts.sum()), 0, list[int](), list[int]()
    with (folder / IDS).open("wb") as words, (folder / ENDS).open("wb") as sentences:

        def flush() -> None:
            words.write(np.array(ids, np.int32).tobytes())
            sentences.write(np.array(ends, np.int64).tobytes())
            ids.clear()
            ends.clear()
            if progress:
                progress("words written", done, total)

        for line in texts():
            found = [number[word] for word in split(line) if word in number]
            if found:
                ids += found
                done += len(found)
                ends.append(done)
            if len(ids) >= _BUFFER:
                flush()
        flush()
    return done
