"""What a run of word2vec can be told."""

from dataclasses import dataclass
from typing import Literal

from cloze.config import check_choices, in_range, number
from cloze.errors import ConfigError
from cloze.models.configs.word2vec import Grams


@dataclass(frozen=True, kw_only=True)
class Text:
    """How text becomes words."""

    split: Literal["words", "spaces"] = "words"  # spaces: the text is split into words already
    lowercase: bool = True
    min_count: int = 5
    max_words: int | None = None  # the most frequent so many
    phrases: int = 0  # passes that join words: two make phrases of up to four
    phrase_threshold: float = 100.0  # of word2phrase's score

    def __post_init__(self) -> None:
        check_choices(self)
        in_range("min_count", self.min_count, 1, 1 << 40)
        in_range("phrases", self.phrases, 0, 5)
        number("phrase_threshold", self.phrase_threshold, 0, 1e12)
        if self.max_words is not None:
            in_range("max_words", self.max_words, 2, 1 << 31)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How vectors are learned; the defaults are word2vec.c's."""

    kind: Literal["skip-gram", "cbow"] = "skip-gram"
    objective: Literal["negative", "hierarchical", "nce"] = "negative"
    width: int = 300
    window: int = 5  # at most: each word's is shrunk at random, so that near words count more
    negatives: int = 5
    power: float = 0.75  # negatives are drawn by count to this power
    sample: float = 1e-3  # words more frequent than this leave at random; 0: none
    rate: float | None = None  # 0.025, for CBOW 0.05; falls to `last_rate` in a straight line
    last_rate: float = 1e-4
    epochs: int = 5
    grams: Grams | None = None  # fastText's character n-grams
    seed: int = 0
    threads: int = 2  # one gives the same vectors every time, bit for bit

    def __post_init__(self) -> None:
        check_choices(self)
        for name, low, high in (
            ("width", 1, 1 << 14),
            ("window", 1, 1000),
            ("negatives", 1, 1000),
            ("epochs", 1, 100_000),
            ("seed", 0, (1 << 63) - 1),
            ("threads", 1, 1024),
        ):
            in_range(name, getattr(self, name), low, high)
        number("power", self.power, -10, 10)
        number("sample", self.sample, 0, 1)
        number("last_rate", self.last_rate, 0, 10)
        if number("rate", self.first_rate, 0, 10) < self.last_rate:
            raise ConfigError(
                f"the rate {self.first_rate:g} would rise to last_rate {self.last_rate:g}",
                fix="choose a smaller last_rate",
            )

    @property
    def first_rate(self) -> float:
        """The rate at the start."""
        if self.rate is not None:
            return self.rate
        return 0.05 if self.kind == "cbow" else 0.025
