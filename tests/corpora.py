"""Small corpora for tests: on disk and in memory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cloze.data.config import CorpusOptions
from cloze.data.corpus import Corpus, CorpusSplit
from cloze.data.prepare import prepare_corpus
from cloze.text.tokenizer import Tokenizer
from helpers import SPECIAL, files_of

LINES = CorpusOptions(sentences="lines", hold_out=0.0)


def numbered_tokenizer(words: int = 500) -> Tokenizer:
    """Every word w0, w1, … is one token; wx is two."""
    return Tokenizer.from_vocab([*SPECIAL, *(f"w{n}" for n in range(words)), "w", "##x"])


def write_documents(path: Path, documents: Sequence[Sequence[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", encoding="utf-8")
    return path


def some_documents(count: int = 40, seed: int = 0, words: int = 500) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [
        [
            " ".join(f"w{n}" for n in rng.integers(0, words, rng.integers(1, 30)))
            for _ in range(size)
        ]
        for size in rng.integers(1, 12, count)
    ]


def small_corpus(
    folder: Path,
    documents: Sequence[Sequence[str]],
    *,
    tokenizer: Tokenizer | None = None,
    **options: object,
) -> Corpus:
    source = write_documents(folder / "text.txt", documents)
    made = CorpusOptions(**{"sentences": "lines", "hold_out": 0.0, **options})  # type: ignore[arg-type]
    return prepare_corpus(
        source, tokenizer or numbered_tokenizer(), folder / "corpus", made, workers=1
    )


class InMemory:
    """What samples need of a corpus. Token number t has id FIRST + t: each is known again."""

    FIRST = len(SPECIAL)

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        lengths = [length for document in documents for length in document]
        self.sentence_starts = np.cumsum([0, *lengths])
        self.document_starts = np.cumsum([0, *map(len, documents)])
        self.vocab_size = self.FIRST + int(self.sentence_starts[-1])
        self.tokenizer = Tokenizer.from_vocab(
            [*SPECIAL, *(f"w{n}" for n in range(self.sentence_starts[-1]))]
        )

    @property
    def split(self) -> CorpusSplit:
        return CorpusSplit(self, np.arange(len(self.document_starts) - 1))  # type: ignore[arg-type]

    def read_tokens(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.arange(first, last)
        return tokens + self.FIRST, tokens % 3 == 0

    def document_of(self, token: int) -> int:
        sentence = np.searchsorted(self.sentence_starts, token, "right") - 1
        return int(np.searchsorted(self.document_starts, sentence, "right") - 1)


def contents(folder: Path) -> dict[str, bytes]:
    names = files_of(folder) - {"corpus.json"}  # which holds the time of the inputs
    return {name: (folder / name).read_bytes() for name in names}


def only_shard(corpus: Corpus) -> Path:
    (shard,) = (corpus.folder / "shards").glob("[!i]*")
    return shard
