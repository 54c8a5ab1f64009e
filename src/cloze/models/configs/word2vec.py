"""The configuration of word vectors: word2vec (Mikolov et al. 2013) and its subword variant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range, in_range
from cloze.errors import ConfigError
from cloze.models.configs.base import ModelConfig

MAX_HIDDEN_SIZE = 1 << 16
_BASIS, _PRIME, _WORD = 2166136261, 16777619, 0xFFFFFFFF  # of FNV-1a with 32 bits


@dataclass(frozen=True, kw_only=True)
class Grams:
    """Which character n-grams a word has: of `<word>`, those of `shortest` to `longest` letters.

    An n-gram is known by its hash alone, and shares its bucket with whatever else falls there.
    """

    shortest: int = 3
    longest: int = 6
    buckets: int = 200_000  # the paper has two million, for all of Wikipedia

    def __post_init__(self) -> None:
        in_range("shortest", self.shortest, 1, 50)
        in_range("longest", self.longest, self.shortest, 50)
        in_range("buckets", self.buckets, 1, 1 << 31)

    def of(self, word: str) -> list[int]:
        """The buckets of a word's n-grams."""
        letters = [letter.encode("utf-8", "surrogatepass") for letter in f"<{word}>"]
        found = []
        for start in range(len(letters)):
            hashed = _BASIS
            for length, letter in enumerate(letters[start : start + self.longest], 1):
                for byte in letter:
                    # fastText takes bytes as signed: those above 127 flip all higher bits
                    signed = byte | 0xFFFFFF00 if byte > 127 else byte  # noqa: PLR2004
                    hashed = (hashed ^ signed) * _PRIME & _WORD
                edge = start == 0 or start + length == len(letters)
                if length >= self.shortest and not (length == 1 and edge):
                    found.append(hashed % self.buckets)
        return found


@dataclass(frozen=True, kw_only=True)
class Word2VecConfig(ModelConfig):
    """The size of word vectors, and how a word is looked up."""

    family: ClassVar[str] = "word2vec"
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "lowercase", "training")
    MAX_VOCAB_SIZE: ClassVar[int] = 1 << 31

    hidden_size: Annotated[int, Range(1, MAX_HIDDEN_SIZE), Help("Width of the vectors")] = 300
    lowercase: bool = False  # words are looked up in lower case
    grams: Grams | None = None  # fastText's character n-grams
    training: Mapping[str, Any] = field(default_factory=dict)  # the settings they were made with

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.training, Mapping):
            raise ConfigError("training is not a table", fix="leave it out")
