"""Text as numbers on disk: four bytes a word, memory-mapped and read in chunks of sentences.

A sentence is a row of the source, a line or a paragraph: windows do not reach beyond it. Words
outside the vocabulary are left out, as if they were not there.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloze.errors import FolderError
from cloze.files import flush, read_json, write_json, write_text
from cloze.text.counting import Progress
from cloze.train.word2vec.settings import Text
from cloze.train.word2vec.vocabulary import Texts, Vocabulary, count

IDS, ENDS, WORDS, KEY = "ids.i32", "ends.i64", "words.json", "key.json"
CHUNK = 10_000  # words between two looks at the rate, as in gensim and word2vec.c
_BUFFER = 1 << 20  # words between two writes
_CAP = 1 << 32  # bytes of the list of words
_AGAIN = "delete the folder and run again"


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A corpus on disk."""

    vocabulary: Vocabulary
    ids: NDArray[np.int32]
    ends: NDArray[np.int64]

    def chunks(self, size: int = CHUNK) -> Iterator[tuple[int, int]]:
        """Sentences first … last of about so many words each."""
        first = 0
        while first < len(self.ends):
            begin = int(self.ends[first - 1]) if first else 0
            last = int(np.searchsorted(self.ends, begin + size, "left")) + 1
            yield first, min(last, len(self.ends))
            first = last

    def read(self, first: int, last: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The words of sentences first … last, and where each ends."""
        begin = int(self.ends[first - 1]) if first else 0
        ends = np.array(self.ends[first:last], np.int64)
        return np.array(self.ids[begin : ends[-1]], np.int32), ends - begin


def encode(
    texts: Texts,
    text: Text,
    folder: Path,
    *,
    inventory: object = None,
    progress: Progress | None = None,
) -> Encoded:
    """Count the words and write the corpus, or take the one that lies there if it is the same.

    It is the same if the sources' inventory is, which None never is, and how they are split.
    """
    key = _key(text, inventory)
    found = folder / KEY
    if inventory is not None and found.is_file() and found.read_text() == key:
        return opened(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    vocabulary = count(texts, text, progress)
    _write(texts, vocabulary, text, folder, progress)
    kept = {
        "words": vocabulary.words,
        "counts": vocabulary.counts.tolist(),
        "phrases": [sorted(pairs) for pairs in vocabulary.phrases],
    }
    for name in (IDS, ENDS):
        flush(folder / name)
    write_json(folder / WORDS, kept, indent=None)
    write_text(found, key)  # last: with it the rest is whole
    return opened(folder)


def opened(folder: Path) -> Encoded:
    """A corpus that was written before."""
    kept = read_json(folder / WORDS, cap=_CAP, fix=_AGAIN)
    try:
        vocabulary = Vocabulary(
            words=tuple(kept["words"]),
            counts=np.array(kept["counts"], np.int64),
            phrases=tuple(frozenset(pairs) for pairs in kept["phrases"]),
        )
        ids = np.memmap(folder / IDS, np.int32, "r")
        ends = np.memmap(folder / ENDS, np.int64, "r")
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        raise _not_whole(folder) from None
    if len(ids) != vocabulary.counts.sum() or ends[-1] != len(ids):
        raise _not_whole(folder)
    return Encoded(vocabulary=vocabulary, ids=ids, ends=ends)


def _write(
    texts: Texts, vocabulary: Vocabulary, text: Text, folder: Path, progress: Progress | None
) -> None:
    split = vocabulary.splitter(text)
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


def _not_whole(folder: Path) -> FolderError:
    return FolderError(f"the corpus in {folder} is not whole", fix=_AGAIN)


def _key(text: Text, inventory: object) -> str:
    said = json.dumps({"format": 1, "text": asdict(text), "sources": inventory}, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()
