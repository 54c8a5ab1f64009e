"""The recipes of language models and word vectors, each one frozen tree that TOML can say."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cloze.config import check_choices, in_range, number
from cloze.files import PathLike
from cloze.make.pretrain.recipe import check_one_model, completed
from cloze.make.recipe.run import SelectingRun, StartTable
from cloze.models.configs.lstm import LSTMConfig
from cloze.models.configs.ngram import BOS, MAX_ORDER
from cloze.models.configs.nnlm import NNLMConfig
from cloze.text.tokenizer_training import check_vocabulary, check_whitespace_vocabulary
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule
from cloze.train.word2vec.settings import Settings as Word2VecSettings
from cloze.train.word2vec.settings import Text as Word2VecText


@dataclass(frozen=True, kw_only=True)
class WordsTable:
    """The vocabulary: one that is there, or one to learn from the text."""

    folder: str | None = None
    kind: Literal["word", "spaced", "wordpiece", "bpe", "char"] = "word"
    size: int = 500_000
    lowercase: bool | None = None  # so for word and wordpiece, never for spaced
    min_count: int = 2  # rarer words are unknown ones, so that their probability is learned

    def __post_init__(self) -> None:
        check_choices(self)
        if self.kind == "spaced":
            check_whitespace_vocabulary(vocab_size=self.size, min_count=self.min_count)
        else:
            check_vocabulary(kind=self.kind, vocab_size=self.size, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """The text; a line is a sentence."""

    sources: tuple[str, ...] = ()  # files, folders and globs
    column: str | None = None


@dataclass(frozen=True, kw_only=True)
class JudgedTable(SourceTable):
    """The text, and what the model is judged by while it learns."""

    dev: tuple[str, ...] = ()
    hold_out: float = 0.02  # of the lines, the last ones, where no `dev` is named

    def __post_init__(self) -> None:
        number("corpus.hold_out", self.hold_out, 0.0, 0.9)


@dataclass(frozen=True, kw_only=True)
class NGramTable:
    """How n-grams are counted."""

    order: int = 5
    memory: int = 1024  # MiB

    def __post_init__(self) -> None:
        in_range("ngram.order", self.order, 1, MAX_ORDER)
        in_range("ngram.memory", self.memory, 1, 1 << 30)


@dataclass(frozen=True, kw_only=True)
class NGramRecipe:
    """One counting."""

    corpus: SourceTable = field(default_factory=SourceTable)
    vocabulary: WordsTable = field(default_factory=WordsTable)
    ngram: NGramTable = field(default_factory=NGramTable)


@dataclass(frozen=True, kw_only=True)
class Word2VecRecipe:
    """One run of word2vec."""

    corpus: SourceTable = field(default_factory=SourceTable)
    text: Word2VecText = field(default_factory=Word2VecText)
    word2vec: Word2VecSettings = field(default_factory=Word2VecSettings)


@dataclass(frozen=True, kw_only=True)
class LanguageRun(SelectingRun):
    """A run that learns what comes next."""

    batch: int = 64  # windows of an NNLM, strips of an LSTM
    length: int = 35  # tokens that gradients of an LSTM go back
    reset: float = 0.02  # share of an LSTM's strips that forget before each step

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch", "length"):
            in_range(f"run.{name}", getattr(self, name), 1, 1 << 30)
        number("run.reset", self.reset, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe:
    """One run; the shape that is there says which kind of model it makes."""

    model: StartTable = field(default_factory=StartTable)
    corpus: JudgedTable = field(default_factory=JudgedTable)
    vocabulary: WordsTable = field(default_factory=WordsTable)
    nnlm: NNLMConfig | None = None
    lstm: LSTMConfig | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: LanguageRun = field(default_factory=LanguageRun)

    def __post_init__(self) -> None:
        check_one_model(nnlm=self.nnlm, lstm=self.lstm)

    def config(self, vocab_size: int) -> NNLMConfig | LSTMConfig:
        """The shape with a vocabulary."""
        shape = self.nnlm or self.lstm
        assert shape is not None
        return replace(shape, vocab_size=vocab_size, bos_id=BOS)


def language_recipe(
    source: LanguageRecipe | PathLike,
    *,
    flags: dict[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> LanguageRecipe:
    """The recipe of a name or a file, with flags (a nested mapping) and `a.b=c` settings on top."""
    return completed(LanguageRecipe, source, flags, settings)
