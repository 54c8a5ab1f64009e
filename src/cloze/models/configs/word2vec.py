"""The configuration of word vectors: word2vec (Mikolov et al. 2013) and its subword variant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range, in_range
from cloze.errors import ConfigError
from cloze.models.configs.base import ModelConfig

MAX_HIDDEN_SIZE = 1 << 16
_FNV_BASIS, _FNV_PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF  # of 32-bit FNV-1a


@dataclass(frozen=True, kw_only=True)
class CharNGrams:
    """The character n-grams of `<word>` with min_n to max_n letters, as in fastText.

    An n-gram is identified by its hash only, so n-grams with the same hash share a vector.
    """

    min_n: int = 3
    max_n: int = 6
    buckets: int = 200_000  # the paper uses two million, for all of Wikipedia

    def __post_init__(self) -> None:
        in_range("min_n", self.min_n, 1, 50)
        in_range("max_n", self.max_n, self.min_n, 50)
        in_range("buckets", self.buckets, 1, 1 << 31)

    def hash_ngrams(self, word: str) -> list[int]:
        """The buckets of a word's n-grams."""
        letters = [letter.encode("utf-8", "surrogatepass") for letter in f"<{word}>"]
        found = []
        for start in range(len(letters)):
            hashed = _FNV_BASIS
            for length, letter in enumerate(letters[start : start + self.max_n], 1):
                for byte in letter:
                    # fastText's bytes are signed: those above 127 set all higher bits
                    signed = byte | 0xFFFFFF00 if byte > 127 else byte  # noqa: PLR2004
                    hashed = (hashed ^ signed) * _FNV_PRIME & _MASK
                is_boundary = start == 0 or start + length == len(letters)
                if length >= self.min_n and not (length == 1 and is_boundary):
                    found.append(hashed % self.buckets)
        return found


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(ModelConfig):
    """The hyperparameters of word vectors."""

    family: ClassVar[str] = "word2vec"
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "lowercase", "training")
    MAX_VOCAB_SIZE: ClassVar[int] = 1 << 31

    hidden_size: Annotated[int, Range(1, MAX_HIDDEN_SIZE), Help("Width of the vectors")] = 300
    lowercase: bool = False  # words are looked up in lower case
    char_ngrams: CharNGrams | None = None
    training: Mapping[str, Any] = field(default_factory=dict)  # the settings of the training

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.training, Mapping):
            raise ConfigError("training is not a table", fix="remove it")
