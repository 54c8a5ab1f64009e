"""word2vec (Mikolov et al. 2013): one vector per word.  v words, d width, b buckets.

Vectors of other origin (GloVe, Google's) are the same thing. With character n-grams (fastText,
Bojanowski et al. 2017) a word that was never seen has a vector too: the mean of its n-grams'.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import suggest
from cloze.errors import InputError
from cloze.models.configs.word2vec import Grams

Floats: TypeAlias = NDArray[np.float32]

_NEAR = 20_000  # words among which a mistyped one is looked for


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WordVectors:
    """Words and their vectors, the most frequent first where that is known."""

    words: Sequence[str]
    vectors: Floats  # v d
    counts: NDArray[np.int64] | None = None  # v
    grams: Grams | None = None
    gram_vectors: Floats | None = None  # b d, with `grams`
    lowercase: bool = False  # words are looked up in lower case

    def __repr__(self) -> str:
        grams = "" if self.grams is None else f", grams={self.grams}"
        return f"{type(self).__name__}(words={len(self)}, width={self.width}{grams})"

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def num_parameters(self) -> int:
        """How many numbers the vectors have."""
        grams = 0 if self.gram_vectors is None else self.gram_vectors.size
        return int(self.vectors.size + grams)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find(word) is not None

    def __getitem__(self, word: str) -> Floats:
        """The vector of a word: its own, or that of its n-grams."""
        row = self.find(word)
        if row is not None:
            return self.vectors[row]
        if self.grams is not None and self.gram_vectors is not None:
            rows = self.grams.of(self._spelled(word))
            if rows:
                return self.gram_vectors[rows].mean(0)
        raise InputError(
            f"there is no word {word!r} among these {len(self.words):,}",
            fix=suggest(word, self.words[:_NEAR])
            if self._near(word)
            else "choose another word, or train with character n-grams, which spell any",
        )

    def find(self, word: str) -> int | None:
        """The row of a word, if it has one: as it is written, else in lower case."""
        row = self.rows.get(word)
        return self.rows.get(self._spelled(word)) if row is None else row

    @cached_property
    def rows(self) -> dict[str, int]:
        """Where each word's vector is; of two alike, the first."""
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def unit(self) -> Floats:
        """All vectors with length 1, so that a product of two is their cosine."""
        return normalised(self.vectors)

    def _spelled(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def _near(self, word: str) -> bool:
        return suggest(word, self.words[:_NEAR]).startswith("did you mean")


def normalised(vectors: Floats) -> Floats:
    """Each with length 1; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
