"""The recipes of language models and word vectors."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from cloze.config import Config, Flag, Help, Range, to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.data import LanguageModelData, TextData
from cloze.make.recipe.model import ModelChoice
from cloze.make.recipe.run import SelectingRun
from cloze.make.recipe.vocabulary import VocabularyConfig
from cloze.models.registry import get_family
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule
from cloze.train.word2vec.settings import Word2VecRun, Word2VecVocabulary


def _words() -> VocabularyConfig:
    # rarer words become unknown ones, so that their probability is learned
    return VocabularyConfig(kind="word", size=500_000, min_count=2)


@dataclass(frozen=True, kw_only=True)
class LanguageModelRun(SelectingRun):
    """A run that learns to predict the next token."""

    batch_size: Annotated[
        int,
        Range(1, 1 << 30),
        Help("Number of examples in a step: windows of an NNLM, parallel sequences of an LSTM"),
        Flag("--batch-size", "N"),
    ] = 64
    bptt_length: Annotated[
        int,
        Range(1, 1 << 30),
        Help("LSTM: number of tokens that gradients flow back"),
        Flag("--max-length", "N"),
    ] = 35
    state_reset_prob: Annotated[
        float, Range(0, 1), Help("LSTM: probability that a sequence's state is reset in a step")
    ] = 0.02


@dataclass(frozen=True, kw_only=True)
class LanguageModelRecipe(Config):
    """One run of a neural language model: a new one, or one to continue."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="lstm"))
    data: LanguageModelData = field(default_factory=LanguageModelData)
    vocabulary: VocabularyConfig = field(default_factory=_words)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: LanguageModelRun = field(default_factory=LanguageModelRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.init_from is not None:  # the model to continue has its own tokenizer
            object.__setattr__(self, "vocabulary", _words())

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it: without the vocabulary that a model to continue has."""
        values = to_mapping(self)
        if self.model.init_from is not None:
            del values["vocabulary"]
        return values


@dataclass(frozen=True, kw_only=True)
class NGramRun(Config):
    """How n-grams are counted."""

    memory_mib: Annotated[int, Range(1, 1 << 30), Help("Memory for sorting, in MiB")] = 1024


@dataclass(frozen=True, kw_only=True)
class NGramRecipe(Config):
    """One n-gram model."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="ngram"))
    data: TextData = field(default_factory=TextData)
    vocabulary: VocabularyConfig = field(default_factory=_words)
    run: NGramRun = field(default_factory=NGramRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_new(self.model)


@dataclass(frozen=True, kw_only=True)
class Word2VecRecipe(Config):
    """One run of word2vec."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="word2vec"))
    data: TextData = field(default_factory=TextData)
    vocabulary: Word2VecVocabulary = field(default_factory=Word2VecVocabulary)
    run: Word2VecRun = field(default_factory=Word2VecRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_new(self.model)


def check_new(model: ModelChoice) -> None:
    """Raise where a model is to be continued whose training has no steps to continue."""
    if model.init_from is not None:
        raise ConfigError(
            f"{get_family(model.family).description} cannot be continued (model.init_from)",
            fix="train a new one on the old text and the new together, without --init-from",
        )
