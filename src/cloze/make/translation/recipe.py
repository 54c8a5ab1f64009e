"""The recipe of translators."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from cloze.config import Choices, Config, Flag, Help, Range, to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.data import ParallelData
from cloze.make.recipe.model import ModelChoice
from cloze.make.recipe.run import SelectingRun
from cloze.make.recipe.vocabulary import VocabularyConfig
from cloze.models.registry import get_family
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

BLEU_TOKENIZERS = ("13a", "zh", "none")  # the names that `metrics.bleu` knows


def _joint_bpe() -> VocabularyConfig:
    return VocabularyConfig(kind="bpe", size=10_000, lowercase=False)


@dataclass(frozen=True, kw_only=True)
class TranslationLoss(Config):
    """The loss of a translator."""

    label_smoothing: Annotated[
        float, Range(0, 1), Help("Label-smoothing factor"), Flag("--label-smoothing", "P")
    ] = 0.1
    scheduled_sampling_prob: Annotated[
        float,
        Range(0, 1),
        Help("Seq2seq: final probability of feeding back the model's own predictions"),
    ] = 0.0
    scheduled_sampling_epochs: Annotated[
        float, Range(1e-6, 1e9), Help("Epochs in which that probability rises linearly from 0")
    ] = 10.0

    def sampling_prob_at(self, epoch: float) -> float:
        """The probability of feeding back predictions (Bengio et al. 2015, linear decay)."""
        return self.scheduled_sampling_prob * min(1.0, epoch / self.scheduled_sampling_epochs)


@dataclass(frozen=True, kw_only=True)
class TranslationRun(SelectingRun):
    """A run that learns to translate."""

    batch_tokens: Annotated[
        int,
        Range(1, 1 << 30),
        Help("Number of tokens in a batch, padding included, on the longer side"),
        Flag("--batch-tokens", "N"),
    ] = 4096
    beam_size: Annotated[int, Range(1, 1024), Help("Beam size of evaluations")] = 1
    bleu_tokenizer: Annotated[
        str, Choices(*BLEU_TOKENIZERS), Help("Tokenizer of BLEU; zh for Chinese")
    ] = "13a"


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Config):
    """One run of a translator: a new one, or one to continue."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="transformer"))
    data: ParallelData = field(default_factory=ParallelData)
    # one vocabulary for both languages
    vocabulary: VocabularyConfig = field(default_factory=_joint_bpe)
    loss: TranslationLoss = field(default_factory=TranslationLoss)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: TranslationRun = field(default_factory=TranslationRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        if get_family(self.model.family).kind != "translator":
            raise ConfigError(
                f"model.family {self.model.family!r} is not a translator",
                fix='use "transformer" or "seq2seq"',
            )
        if self.model.family == "transformer" and self.loss.scheduled_sampling_prob:
            raise ConfigError(
                "loss.scheduled_sampling_prob is for recurrent decoders: a Transformer reads all "
                "target tokens at once",
                fix="set it to 0, or use the family seq2seq",
            )
        if self.model.init_from is not None:  # the model to continue has its own tokenizer
            object.__setattr__(self, "vocabulary", _joint_bpe())
        elif self.vocabulary.kind != "bpe":
            raise ConfigError(
                f"vocabulary.kind is {self.vocabulary.kind!r}, but translators use byte-level BPE",
                fix='set vocabulary.kind to "bpe"',
            )

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it: without the vocabulary that a model to continue has."""
        values = to_mapping(self)
        if self.model.init_from is not None:
            del values["vocabulary"]
        return values
