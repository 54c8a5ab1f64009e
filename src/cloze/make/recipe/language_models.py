"""The recipes of language models, translators and word vectors."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal

from cloze.config import Choices, Config, Flag, Help, Range, to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.data import LanguageModelData, ParallelData, TextData, VocabularyConfig
from cloze.make.recipe.model import ModelChoice
from cloze.make.recipe.run import SelectingRun
from cloze.models.registry import get_family
from cloze.train.config import OptimizerConfig, Word2VecRun, Word2VecVocabulary
from cloze.train.schedule import Schedule

BLEU_TOKENIZERS = ("13a", "zh", "none")  # the names that `metrics.bleu` knows


def _words() -> VocabularyConfig:
    # rarer words become unknown ones, so that their probability is learned
    return VocabularyConfig(kind="word", size=500_000, min_count=2)


def _joint_bpe() -> VocabularyConfig:
    # one vocabulary for both languages
    return VocabularyConfig(kind="bpe", size=10_000, lowercase=False)


@dataclass(frozen=True, kw_only=True)
class SequenceModelRecipe(Config):
    """A run that trains a model to predict the next token: a new model, or one to continue."""

    UNUSED_FLAGS: ClassVar[frozenset[str]] = frozenset({"extra_tokens"})

    model: ModelChoice = field(default_factory=ModelChoice)
    vocabulary: VocabularyConfig = field(default_factory=_words)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: SelectingRun = field(default_factory=SelectingRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.init_from is not None:  # the model to continue has its own tokenizer
            (make,) = (one.default_factory for one in fields(self) if one.name == "vocabulary")
            assert callable(make)
            object.__setattr__(self, "vocabulary", make())

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it: without the vocabulary that a model to continue has."""
        values = to_mapping(self)
        if self.model.init_from is not None:
            del values["vocabulary"]
        return values


@dataclass(frozen=True, kw_only=True)
class LanguageModelRun(SelectingRun):
    """A run that trains a neural language model."""

    batch_size: Annotated[
        int,
        Range(1, 1 << 30),
        Help(
            "Number of examples in a step: windows of an NNLM, parallel sequences of an LSTM or "
            "ELMo, images"
        ),
        Flag("--batch-size", "N"),
    ] = 64
    bptt_length: Annotated[
        int,
        Range(1, 1 << 30),
        Help("LSTM: number of tokens over which gradients are propagated back (BPTT)"),
        Flag("--max-length", "N"),
    ] = 35
    variable_length: Annotated[
        bool, Help("LSTM: draw the number of tokens of each step around bptt_length (AWD-LSTM)")
    ] = False
    state_reset_prob: Annotated[
        float, Range(0, 1), Help("LSTM: probability that a sequence's state is reset in a step")
    ] = 0.02
    activation_penalty: Annotated[
        float, Range(0, 1e6), Help("LSTM: weight of the penalty of large activations (AR)")
    ] = 0.0
    temporal_penalty: Annotated[
        float,
        Range(0, 1e6),
        Help("LSTM: weight of the penalty of changes of the activations between tokens (TAR)"),
    ] = 0.0
    eval_rows: Annotated[
        int,
        Range(1, 1 << 20),
        Help(
            "LSTM: number of parts in which dev text is read at once in evaluations; more are "
            "faster on a GPU, but the beginning of each part has less context"
        ),
    ] = 1
    layer_decay: Annotated[
        float,
        Range(0, 1),
        Help("Learning rate of a layer as a fraction of that of the layer above it"),
        Flag("--layer-decay", "X", only=("LSTM",)),
    ] = 1.0


@dataclass(frozen=True, kw_only=True)
class LanguageModelRecipe(SequenceModelRecipe):
    """One run of a neural language model."""

    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="lstm"))
    data: LanguageModelData = field(default_factory=LanguageModelData)
    run: LanguageModelRun = field(default_factory=LanguageModelRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.vocabulary.kind
        if self.model.family == "elmo" and kind not in ("word", "spaced"):
            raise ConfigError(
                f"vocabulary.kind is {kind!r}, but ELMo reads whole words by their characters",
                fix='set vocabulary.kind to "word", or to "spaced" for text that is tokenized',
            )


@dataclass(frozen=True, kw_only=True)
class TranslationLoss(Config):
    """The loss of a translator, of the target tokens."""

    label_smoothing: Annotated[
        float, Range(0, 1), Help("Label-smoothing factor"), Flag("--label-smoothing", "P")
    ] = 0.1
    source_weight: Annotated[
        float,
        Range(0, 100),
        Help("Decoder-only model: weight of the language-model loss of the source tokens"),
        Flag("--source-weight", "X"),
    ] = 0.0
    scheduled_sampling_prob: Annotated[
        float,
        Range(0, 1),
        Help("Seq2seq: final probability of feeding back the model's own predictions"),
    ] = 0.0
    scheduled_sampling_epochs: Annotated[
        float,
        Range(1e-6, 1e9),
        Help("Seq2seq: number of epochs in which that probability rises linearly from 0"),
    ] = 10.0

    def sampling_prob_at(self, epoch: float) -> float:
        """The probability of feeding back predictions (Bengio et al. 2015, linear decay)."""
        return self.scheduled_sampling_prob * min(1.0, epoch / self.scheduled_sampling_epochs)


@dataclass(frozen=True, kw_only=True)
class TranslationRun(SelectingRun):
    """A run that trains a translator."""

    batch_tokens: Annotated[
        int,
        Range(1, 1 << 30),
        Help(
            "Number of tokens in a batch, padding included: on the longer side, or of source and "
            "target together if the model is decoder-only"
        ),
        Flag("--batch-tokens", "N"),
    ] = 4096
    beam_size: Annotated[int, Range(1, 1024), Help("Beam size of evaluations")] = 1
    bleu_tokenizer: Annotated[
        str, Choices(*BLEU_TOKENIZERS), Help("Tokenizer of BLEU: 13a, zh (Chinese) or none")
    ] = "13a"
    dropout: Annotated[
        float | None,
        Range(0, 1),
        Help("Dropout probability of a decoder-only model (default: the model's)"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(SequenceModelRecipe):
    """One run of a model that writes a target for each source: a translation, a summary.

    It is an encoder–decoder, or a decoder-only model that reads source and target as one sequence.
    """

    UNUSED_FLAGS: ClassVar[frozenset[str]] = frozenset({"extra_tokens", "init_from", "preset"})

    task: Annotated[Literal["translate", "summarize"], Help("Task: translate or summarize")] = (
        "translate"
    )
    model: ModelChoice = field(default_factory=lambda: ModelChoice(family="transformer"))
    data: ParallelData = field(default_factory=ParallelData)
    vocabulary: VocabularyConfig = field(default_factory=_joint_bpe)
    loss: TranslationLoss = field(default_factory=TranslationLoss)
    run: TranslationRun = field(default_factory=TranslationRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_translator = get_family(self.model.family).kind == "translator"
        is_causal = self.model.config is None or getattr(self.model.config, "is_causal", False)
        if not is_translator and not is_causal:
            raise ConfigError(
                f"model.family {self.model.family!r} is not a translator, and not causal",
                fix='use "transformer", "seq2seq", or a decoder-only family: "gpt2"',
            )
        if self.model.family != "seq2seq" and self.loss.scheduled_sampling_prob:
            raise ConfigError(
                "loss.scheduled_sampling_prob is for recurrent decoders: a Transformer reads all "
                "target tokens at once",
                fix="set it to 0, or use the family seq2seq",
            )
        for name, value in (
            ("loss.source_weight", self.loss.source_weight),
            ("run.dropout", self.run.dropout),
        ):
            if is_translator and value:
                raise ConfigError(
                    f"{name} is for decoder-only models, but the family is {self.model.family}",
                    fix="leave it out, or use a decoder-only model, such as a GPT-2",
                )
        if self.data.lead_as_summary and self.task != "summarize":
            raise ConfigError(
                f"data.lead_as_summary has no effect on the task {self.task}",
                fix="leave it out, or use the task summarize",
            )
        if is_translator and self.vocabulary.kind != "bpe":
            raise ConfigError(
                f"vocabulary.kind is {self.vocabulary.kind!r}, but translators use byte-level BPE",
                fix='set vocabulary.kind to "bpe"',
            )


@dataclass(frozen=True, kw_only=True)
class NGramRun(Config):
    """How n-grams are counted."""

    memory_mib: Annotated[int, Range(1, 1 << 30), Help("Memory for sorting, in MiB")] = 1024


@dataclass(frozen=True, kw_only=True)
class NGramRecipe(Config):
    """One n-gram model."""

    UNUSED_FLAGS: ClassVar[frozenset[str]] = frozenset({"extra_tokens"})

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
    """Raise if a model is to be continued whose training cannot be continued."""
    if model.init_from is not None:
        raise ConfigError(
            f"{get_family(model.family).description} cannot be continued (model.init_from)",
            fix="train a new one on the old text and the new together, without --init-from",
        )
