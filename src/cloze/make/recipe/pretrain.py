"""The recipes of encoders trained on raw text: pre-training and distillation."""

from dataclasses import dataclass, field, fields, replace
from math import gcd
from typing import Annotated, Any

from cloze.config import Config, Flag, Help, Range, in_range, to_mapping
from cloze.data.config import MIN_LENGTH, Batching, SamplingConfig
from cloze.errors import ConfigError
from cloze.make.recipe.data import CorpusData, VocabularyConfig
from cloze.make.recipe.model import ModelChoice
from cloze.make.recipe.run import PretrainRun
from cloze.models.registry import get_family
from cloze.objectives.config import DistillationConfig, MaskingConfig, ObjectiveConfig
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

MASK_KINDS = ("wordpiece", "word", "char")  # the vocabularies that have [CLS], [SEP] and [MASK]


@dataclass(frozen=True, kw_only=True)
class PhasedSampling(SamplingConfig):
    """Samples of one length, or first of a shorter one, as BERT was trained.

    The original has 128 tokens in 90 % of the steps and 512 in the rest, to learn the positions
    (Devlin et al. 2018, appendix A.2): attention to long sequences is expensive.
    """

    phase1_max_length: Annotated[
        int | None,
        Range(MIN_LENGTH, 1 << 20),
        Help(
            "Maximum number of tokens in a sequence in the first phase of the training (default: "
            "no first phase, as with a value of --max-length or more)"
        ),
        Flag("--phase1-max-length", "N"),
    ] = None
    phase1_fraction: Annotated[
        float,
        Range(0, 1),
        Help("Fraction of the budget that the first phase takes"),
        Flag("--phase1-fraction", "FRACTION"),
    ] = 0.9

    def phases(self) -> tuple[SamplingConfig, ...]:
        """The samples of each phase: two if the first one is shorter, else one."""
        values = {one.name: getattr(self, one.name) for one in fields(SamplingConfig)}
        last, first = SamplingConfig(**values), self.phase1_max_length
        if first is None or first >= self.max_length or not self.phase1_fraction:
            return (last,)
        return (replace(last, max_length=first), last)


@dataclass(frozen=True, kw_only=True)
class RawTextRecipe(Config):
    """What pre-training and distillation have in common."""

    data: CorpusData = field(default_factory=CorpusData)
    sampling: PhasedSampling = field(default_factory=PhasedSampling)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: Schedule = field(default_factory=Schedule)
    run: PretrainRun = field(default_factory=PretrainRun)

    def _check_batch(self, batch_tokens: int) -> None:
        length = self.sampling.max_length
        if length > batch_tokens:
            raise ConfigError(
                f"sampling.max_length is {length:,}, but a batch has only {batch_tokens:,} tokens",
                fix="use a larger --batch-tokens, or a smaller --max-length",
            )


@dataclass(frozen=True, kw_only=True)
class PretrainRecipe(RawTextRecipe):
    """One pre-training run of an encoder: a new one, or one to continue."""

    model: ModelChoice = field(default_factory=ModelChoice)
    vocabulary: VocabularyConfig = field(default_factory=lambda: VocabularyConfig(lowercase=True))
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if get_family(self.model.family).kind != "encoder":
            raise ConfigError(
                f"model.family {self.model.family!r} is not an encoder",
                fix="use the recipe of that family",
            )
        self._check_batch(self.batching.tokens)
        if self.objective.is_causal and self.sampling.pairs != "none":
            raise ConfigError(
                f"sampling.pairs is {self.sampling.pairs!r}, but a causal model learns no pairs",
                fix='set sampling.pairs to "none" (--pairs none)',
            )
        if self.model.init_from is None:
            self._check_new_model()
            self._check_vocabulary()
        else:  # the model to continue has its own tokenizer
            added = VocabularyConfig(extra_tokens=self.vocabulary.extra_tokens)
            object.__setattr__(self, "vocabulary", added)

    @property
    def init_from(self) -> str | None:
        """The model that the run starts from; None: a new one."""
        return self.model.init_from

    @property
    def distill(self) -> None:
        """There is no teacher."""

    @property
    def batching(self) -> Batching:
        """The batches of a step, split so that every step has its fraction of detection."""
        run, parts = self.run, self.objective.resolved_detection_fraction.denominator
        split = parts // gcd(parts, run.accumulate)
        return Batching(tokens=run.batch_tokens // split, per_step=run.accumulate * split)

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it: without the vocabulary that a model to continue has."""
        values = to_mapping(self)
        if self.init_from is not None:
            values["vocabulary"] = {"extra_tokens": self.vocabulary.extra_tokens}
        return values

    def _check_new_model(self) -> None:
        config, length = self.model.new_config, self.sampling.max_length
        if length > config.max_positions:
            raise ConfigError(
                f"sampling.max_length is {length:,}, but model.max_positions is only "
                f"{config.max_positions:,}",
                fix=f"use --max-length {config.max_positions} or less, or raise "
                "model.max_positions",
            )
        if self.sampling.pairs != "none" and not hasattr(config, "type_vocab_size"):
            raise ConfigError(
                f"sampling.pairs is {self.sampling.pairs!r}, but the family {config.family} has "
                "no segment embeddings",
                fix='set sampling.pairs to "none" (--pairs none)',
            )
        if self.objective.resolved_detection_fraction:
            for name, limit in (
                ("generator_num_layers", config.num_layers),
                ("generator_hidden_size", config.hidden_size),
            ):
                if (value := getattr(self.objective, name)) is not None:
                    in_range(f"objective.{name}", value, 1, limit)
        self._resolve_causality()

    def _resolve_causality(self) -> None:
        """Make the model causal if the objective is."""
        config, is_causal = self.model.new_config, self.objective.is_causal
        if is_causal == getattr(config, "is_causal", False):
            return
        if not is_causal:
            raise ConfigError(
                f"model.is_causal is true, but objective.kind is {self.objective.kind!r}",
                fix='set objective.kind to "causal", or leave model.is_causal out',
            )
        if not hasattr(config, "is_causal"):
            raise ConfigError(
                f"objective.kind is 'causal', but the family {config.family} is bidirectional only",
                fix='set model.family to "bert"',
            )
        model = replace(self.model, config=replace(config, is_causal=True))
        object.__setattr__(self, "model", model)

    def _check_vocabulary(self) -> None:
        words = self.vocabulary
        if words.folder is None and words.kind not in MASK_KINDS and not self.objective.is_causal:
            raise ConfigError(
                f"vocabulary.kind is {words.kind!r}, which has no [MASK] token",
                fix=f"choose from {', '.join(MASK_KINDS)}",
            )
        if words.extra_tokens:  # a user who gives them expects that a model is continued
            raise ConfigError(
                f"vocabulary.extra_tokens is {words.extra_tokens:,}, but no model is continued",
                fix="name one (--init-from), or learn a larger vocabulary (--vocabulary-size)",
            )


@dataclass(frozen=True, kw_only=True)
class StudentConfig(DistillationConfig):
    """The teacher of a distillation, and the shape of its student."""

    teacher: str | None = None  # a folder, a built-in model or "org/name"
    num_layers: Annotated[
        int | None,
        Range(1, 1 << 20),
        Help("Number of layers of the student (default: half of the teacher's)"),
        Flag("--num-layers", "N"),
    ] = None
    family: Annotated[
        str | None,
        Help("Family of the student (default: distilbert for a BERT, else that of the teacher)"),
        Flag("--family", "NAME"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DistillRecipe(RawTextRecipe):
    """One distillation: the student has its teacher's vocabulary, and learns from it."""

    sampling: PhasedSampling = field(default_factory=lambda: PhasedSampling(pairs="none"))
    distill: StudentConfig = field(default_factory=StudentConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_batch(self.batching.tokens)
        if self.sampling.pairs != "none":
            raise ConfigError(
                f"sampling.pairs is {self.sampling.pairs!r}, but a student learns no pairs",
                fix='set sampling.pairs to "none"',
            )

    @property
    def init_from(self) -> str:
        """The teacher."""
        if self.distill.teacher is None:
            raise ConfigError(
                "the recipe distills, but names no teacher",
                fix="use cloze distill TEACHER, or set distill.teacher",
            )
        return self.distill.teacher

    @property
    def objective(self) -> ObjectiveConfig:
        """Masked tokens, beside what the teacher predicts."""
        return ObjectiveConfig()

    @property
    def vocabulary(self) -> VocabularyConfig:
        """Nothing is added to the teacher's."""
        return VocabularyConfig()

    @property
    def batching(self) -> Batching:
        """The batches of a step."""
        return Batching(tokens=self.run.batch_tokens, per_step=self.run.accumulate)

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it."""
        return to_mapping(self)


EncoderRecipe = PretrainRecipe | DistillRecipe


def check_processes(recipe: EncoderRecipe, processes: int) -> None:
    """Raise unless several processes can share the batches of a step equally."""
    size = recipe.batching.per_step
    if size % processes:
        raise ConfigError(
            f"a step has {size} batches (run.accumulate), which {processes} processes cannot share",
            fix=f"use --accumulate {processes}, or a multiple of it",
        )


def is_fast(recipe: EncoderRecipe, device: str, processes: int) -> bool:
    """Whether batches are made on the device and, by one process, the model is compiled."""
    kind, fast = recipe.objective.kind, recipe.run.fast
    if processes > 1 and kind not in ("mlm", "causal"):
        raise ConfigError(
            f"objective.kind {kind!r} supports only one process, and there are {processes}",
            fix='start it without torchrun, or set objective.kind to "mlm" or "causal"',
        )
    if processes > 1 and fast and kind == "mlm":
        raise ConfigError("run.fast supports only one process", fix="leave run.fast out")
    if fast is None:
        is_alone = processes == 1 and device == "cuda" and recipe.run.dtype == "bfloat16"
        fast = is_alone or (processes > 1 and kind == "causal")
    if kind != "mlm" and not fast:
        raise ConfigError(
            f"objective.kind {kind!r} needs batches that are made on the device",
            fix="train on one GPU (--dtype bfloat16), make them on this device nevertheless "
            '(--set run.fast=true), or set objective.kind to "mlm"',
        )
    return fast
