"""Word vectors: word2vec (Mikolov et al. 2013), GloVe, fastText.  v words, d width, b buckets.

With character n-grams (fastText, Bojanowski et al. 2017) words outside the vocabulary have vectors,
too: the mean of the vectors of their n-grams.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloze.config import suggest
from cloze.errors import InputError
from cloze.models.configs.word2vec import CharNGrams

if TYPE_CHECKING:
    from torch import Tensor

Floats: TypeAlias = NDArray[np.float32]

MAX_CHARS = 128  # of an unknown word whose n-grams are looked up; longer ones are not words
_SUGGESTED = 20_000  # the most frequent words, among which similar spellings are searched


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshots:
    """Vectors of the most frequent words during training, in order."""

    words_read: tuple[int, ...]  # s: number of words that training had read
    vectors: Floats  # s v d


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WordVectors:
    """Words and their vectors, the most frequent words first if their counts are known.

    As a source of features it has one layer, the vectors. An unknown word has the vector of its
    character n-grams, or zeros, which are not pooled.
    """

    num_layers: ClassVar[int] = 0  # above the vectors
    unknown_is_zero: ClassVar[bool] = True
    words: Sequence[str]
    vectors: Floats  # v d
    counts: NDArray[np.int64] | None = None  # v
    char_ngrams: CharNGrams | None = None
    ngram_vectors: Floats | None = None  # b d, with `char_ngrams`
    lowercase: bool = False  # words are looked up in lower case
    snapshots: Snapshots | None = None  # of the training, if they were kept

    def __repr__(self) -> str:
        ngrams = "" if self.char_ngrams is None else f", char_ngrams={self.char_ngrams}"
        return f"{type(self).__name__}(words={len(self)}, hidden_size={self.hidden_size}{ngrams})"

    @property
    def hidden_size(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def num_parameters(self) -> int:
        """The number of elements of all vectors."""
        ngrams = 0 if self.ngram_vectors is None else self.ngram_vectors.size
        return int(self.vectors.size + ngrams)

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find_row(word) is not None

    def __getitem__(self, word: str) -> Floats:
        """The vector of a word: its own, or the mean of its n-grams'."""
        vector = self.find_vector(word)
        if vector is not None:
            return vector
        raise InputError(
            f"the word {word!r} is not in the vocabulary of {len(self.words):,} words",
            fix=suggest(word, self.words[:_SUGGESTED])
            if self._has_similar_word(word)
            else "use another word, or train with character n-grams",
        )

    def find_vector(self, word: str) -> Floats | None:
        """The vector of a word: its own, or the mean of its n-grams'; else None."""
        row = self.find_row(word)
        if row is not None:
            return self.vectors[row]
        if self.char_ngrams is not None and self.ngram_vectors is not None:
            rows = self.char_ngrams.hash_ngrams(self._normalize_case(word))
            if rows:
                return self.ngram_vectors[rows].mean(0)
        return None

    def find_row(self, word: str) -> int | None:
        """The row of a word: as it is written, or in lower case if the vocabulary is; else None."""
        row = self.rows.get(word)
        return self.rows.get(self._normalize_case(word)) if row is None else row

    def find_id(self, word: str) -> Any:  # noqa: ANN401
        """The id of a word for `hidden_states`: its row; if it has no vector, the number of words.

        With character n-grams a list: the row, or the rows of the n-grams after those of the words.
        """
        row = self.find_row(word)
        if self.char_ngrams is None:
            return len(self) if row is None else row
        if row is not None:
            return [row]
        if not any(map(str.isalnum, word)):  # punctuation, which is not trained on
            return []
        buckets = self.char_ngrams.hash_ngrams(self._normalize_case(word[:MAX_CHARS]))
        return [len(self) + bucket for bucket in buckets]

    def hidden_states(
        self,
        input_ids: "Tensor",
        attention_mask: object = None,  # noqa: ARG002
        token_type_ids: object = None,  # noqa: ARG002
    ) -> "Iterator[Tensor]":
        """The vectors of ids (n, or n k padded with −1; see `find_id`): n d."""
        import torch

        ids = np.asarray(input_ids.cpu())
        found = np.zeros((len(ids), self.hidden_size), np.float32)
        firsts = ids if ids.ndim == 1 else ids[:, 0] if ids.shape[1] else np.full(len(ids), -1)
        is_known = (firsts >= 0) & (firsts < len(self))
        found[is_known] = self.vectors[firsts[is_known]]
        if self.ngram_vectors is not None:
            for n in np.flatnonzero(firsts >= len(self)):
                found[n] = self.ngram_vectors[ids[n][ids[n] >= 0] - len(self)].mean(0)
        yield torch.from_numpy(found).to(input_ids.device)

    @cached_property
    def is_uncased(self) -> bool:
        """Whether text is looked up in lower case: no word has a capital letter."""
        return self.lowercase or all(word == word.lower() for word in self.words)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each word; the first one of duplicates."""
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def unit_vectors(self) -> Floats:
        """All vectors, normalized to length 1: a dot product of two is their cosine."""
        return normalize_vectors(self.vectors)

    def _normalize_case(self, word: str) -> str:
        return word.lower() if self.lowercase else word

    def _has_similar_word(self, word: str) -> bool:
        return suggest(word, self.words[:_SUGGESTED]).startswith("did you mean")


def normalize_vectors(vectors: Floats) -> Floats:
    """Scale each vector to length 1; zero vectors stay as they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
