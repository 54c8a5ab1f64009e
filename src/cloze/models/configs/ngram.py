"""The configuration of n-gram models, and the symbols that all our word-level models share."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from cloze.config import Help, Range, in_range
from cloze.models.configs.base import ModelConfig

UNK, BOS, EOS = 0, 1, 2  # ids in every n-gram model; <s> is never predicted
SYMBOLS = ("<unk>", "<s>", "</s>")
MAX_ORDER = 5


@dataclass(frozen=True, kw_only=True)
class NGramConfig(ModelConfig):
    """The order of a model, and how its counts were discounted."""

    family: ClassVar[str] = "ngram"
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "discounts", "fallback_discounts")
    MAX_VOCAB_SIZE: ClassVar[int] = 1 << 31

    order: Annotated[int, Range(1, MAX_ORDER), Help("Length of the longest n-grams")] = 5
    discounts: tuple[tuple[float, float, float], ...] = ()  # by order; empty in imported models
    fallback_discounts: tuple[int, ...] = ()  # orders whose discounts could not be estimated

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab_size:
            in_range("vocab_size", self.vocab_size, len(SYMBOLS), self.MAX_VOCAB_SIZE)

    @property
    def bits(self) -> int:
        """How many bits a word takes in a key."""
        return (self.vocab_size - 1).bit_length()
