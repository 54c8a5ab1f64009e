"""The configuration of n-gram models, and the symbols that all our word-level models share."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from cloze.config import Help, Range, in_range
from cloze.errors import ConfigError
from cloze.models.configs.base import ModelConfig

UNK, BOS, EOS = 0, 1, 2  # ids in every n-gram model; <s> is never predicted
SYMBOLS = ("<unk>", "<s>", "</s>")
MAX_ORDER = 5


@dataclass(frozen=True, kw_only=True)
class NGramConfig(ModelConfig):
    """The order of an n-gram model, and the discounts of its counts."""

    family: ClassVar[str] = "ngram"
    FROM_DATA: ClassVar[tuple[str, ...]] = (
        *("vocab_size", "counts"),
        *("discounts", "fallback_discounts"),
    )
    MIN_VOCAB_SIZE: ClassVar[int] = len(SYMBOLS)
    MAX_VOCAB_SIZE: ClassVar[int] = 1 << 31

    order: Annotated[int, Range(1, MAX_ORDER), Help("Length of the longest n-grams")] = 5
    counts: tuple[int, ...] = ()  # number of n-grams by order
    discounts: tuple[tuple[float, float, float], ...] = ()  # by order; empty in imported models
    fallback_discounts: tuple[int, ...] = ()  # orders whose discounts could not be estimated

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.counts:
            self._check_counts()

    def _check_counts(self) -> None:
        if len(self.counts) != self.order or self.counts[0] != self.vocab_size:
            raise ConfigError(
                f"counts {list(self.counts)} does not fit order {self.order} and vocab_size "
                f"{self.vocab_size}",
                fix=f"use {self.order} numbers, one per order; the first is vocab_size",
            )
        for count in self.counts:
            in_range("counts", count, 0, 1 << 62)

    @property
    def bits(self) -> int:
        """The number of bits of a word in a key."""
        return (self.vocab_size - 1).bit_length()
