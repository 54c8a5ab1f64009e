"""The recipe of a translator: everything a run depends on, in one frozen tree that TOML can say."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloze.config import in_range, number, one_of
from cloze.errors import ConfigError
from cloze.files import PathLike
from cloze.make.pretrain.recipe import check_one_model, completed, recipes
from cloze.make.recipe.run import SelectingRun, StartTable
from cloze.metrics.bleu import TOKENIZERS
from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.models.configs.transformer import TransformerConfig
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import check_vocabulary
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

DEFAULT = "transformer"
RECIPES = ("transformer", "transformer-base", "seq2seq")  # that come with the package


@dataclass(frozen=True, kw_only=True)
class PairsTable:
    """What is learned from: aligned files, the source first."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    limit: int = 256  # tokens of a sentence; longer pairs are left out, and counted

    def __post_init__(self) -> None:
        in_range("data.limit", self.limit, 2, 1 << 20)
        for name in ("train", "dev"):
            if len(getattr(self, name)) not in (0, 2):
                raise ConfigError(
                    f"data.{name} names {len(getattr(self, name))} files",
                    fix="name two: the source, then the target",
                )


@dataclass(frozen=True, kw_only=True)
class PiecesTable:
    """One vocabulary for both languages: one that is there, or byte-level BPE to learn."""

    folder: str | None = None
    size: int = 10_000
    lowercase: bool = False
    min_count: int = 2

    def __post_init__(self) -> None:
        check_vocabulary(kind="bpe", vocab_size=self.size, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True)
class TranslateLoss:
    """What counts how much."""

    smoothing: float = 0.1
    own_words: float = 0.0  # recurrent nets: share of the model's own words in the end
    own_epochs: float = 10.0  # in which that share rises from nothing, in a line

    def __post_init__(self) -> None:
        number("loss.smoothing", self.smoothing, 0.0, 1.0)
        number("loss.own_words", self.own_words, 0.0, 1.0)
        number("loss.own_epochs", self.own_epochs, 1e-6, 1e9)

    def own(self, epoch: float) -> float:
        """The share after so many epochs (Bengio et al. 2015, linear decay)."""
        return self.own_words * min(1.0, epoch / self.own_epochs)


@dataclass(frozen=True, kw_only=True)
class TranslateRun(SelectingRun):
    """A run that learns to translate."""

    batch_tokens: int = 4096  # padded, of the longer side
    beam: int = 1  # while judging
    bleu: str = "13a"  # how BLEU finds words; zh where the target is Chinese

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range("run.batch_tokens", self.batch_tokens, 1, 1 << 30)
        in_range("run.beam", self.beam, 1, 1024)
        one_of("run.bleu", self.bleu, TOKENIZERS)


@dataclass(frozen=True, kw_only=True)
class TranslateRecipe:
    """One run; the shape that is there says which kind of model it makes."""

    model: StartTable = field(default_factory=StartTable)
    data: PairsTable = field(default_factory=PairsTable)
    vocabulary: PiecesTable = field(default_factory=PiecesTable)
    transformer: TransformerConfig | None = None
    seq2seq: Seq2SeqConfig | None = None
    loss: TranslateLoss = field(default_factory=TranslateLoss)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: TranslateRun = field(default_factory=TranslateRun)

    def __post_init__(self) -> None:
        check_one_model(transformer=self.transformer, seq2seq=self.seq2seq)
        if self.transformer is not None and self.loss.own_words:
            raise ConfigError(
                "a Transformer sees all target words at once, and none of its own",
                fix="set loss.own_words to 0, or train a seq2seq",
            )

    def config(self, tokenizer: Tokenizer) -> TransformerConfig | Seq2SeqConfig:
        """The shape with a vocabulary."""
        shape = self.transformer or self.seq2seq
        assert shape is not None
        return replace(
            shape,
            vocab_size=tokenizer.vocab_size,
            bos_id=tokenizer.bos_id,  # type: ignore[arg-type]
            eos_id=tokenizer.eos_id,  # type: ignore[arg-type]
        )


def translate_recipe(
    source: TranslateRecipe | PathLike = DEFAULT,
    *,
    flags: dict[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> TranslateRecipe:
    """The recipe of a name or a file, with flags (a nested mapping) and `a.b=c` settings on top."""
    if isinstance(source, str) and source in recipes().keys() - set(RECIPES):
        raise ConfigError(
            f"the recipe {source} is not for translators",
            fix=f"use {', '.join(RECIPES)}, or a file with a table transformer or seq2seq",
        )
    return completed(TranslateRecipe, source, flags, settings)
