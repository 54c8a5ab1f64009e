"""A corpus of word ids on disk: four bytes per word, memory-mapped, read in chunks of sentences.

A sentence is a row of the source (a line or a paragraph): windows do not cross its ends. Words
outside the vocabulary are skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloze.errors import InputError
from cloze.progress import ProgressCallback
from cloze.train.config import Word2VecVocabulary
from cloze.train.word2vec.vocabulary import Texts, Vocabulary, count_words

IDS, ENDS = "ids.i32", "ends.i64"
CHUNK = 10_000  # words between two updates of the learning rate, as in gensim and word2vec.c
_BUFFER = 1 << 20  # words between two writes


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
