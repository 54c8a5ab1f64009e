"""The tables of a recipe for raw text, each checked as it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import gcd
from typing import Literal

from cloze.config import in_range, number, one_of
from cloze.data.packing import Batching
from cloze.data.prepare import Options as CorpusOptions
from cloze.data.samples import Sampling
from cloze.errors import ConfigError
from cloze.models import BertConfig, ModernBertConfig, bert, modernbert
from cloze.nn.encoder import Encoder
from cloze.objectives.distillation import Distillation
from cloze.objectives.masking import Masking
from cloze.text.tokenizer import Tokenizer
from cloze.train.budget import Budget

PRESETS: dict[str, Mapping[str, object]] = {
    "bert": bert.PRESETS,
    "modernbert": modernbert.PRESETS,
}
MODERN = ("global_every", "window", "theta")  # settings of that family alone
UNITS = ("steps", "tokens", "minutes", "epochs")  # of a budget
FINEST = 16  # parts that a batch is cut into, at most, for two tasks to share it


@dataclass(frozen=True, kw_only=True)
class ShapeTable:
    """The model; a size that is unsaid is the preset's."""

    start: str | None = None  # go on from this model, which brings its own shape
    family: Literal["bert", "modernbert"] = "bert"
    preset: str = "mini"
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    hidden: int | None = None
    positions: int = 512
    activation: str = "gelu"
    dropout: float | None = None  # the family's own: 0.1 of a BERT, none of a ModernBERT
    attention_dropout: float | None = None
    deviation: float = 0.02  # of the first weights
    sines: bool = False  # learned positions begin as sine waves instead of noise
    global_every: int | None = None  # of a ModernBERT: one layer of so many looks at all of a text
    window: int | None = None  # of a ModernBERT: places that the other layers see
    theta: float | None = None  # of a ModernBERT: base of the rotary angles in layers that see all

    def __post_init__(self) -> None:
        one_of("model.preset", self.preset, PRESETS[self.family])
        said = [name for name in MODERN if getattr(self, name) is not None]
        if said and self.family != "modernbert":
            raise ConfigError(
                f"model.{said[0]} is a setting of a ModernBERT",
                fix='leave it out, or set model.family to "modernbert"',
            )

    def config(self, vocab_size: int, *, causal: bool = False) -> BertConfig | ModernBertConfig:
        """The shape for a vocabulary; only a BERT can be causal."""
        apart = ("start", "family", "preset", "sines")
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        given = {name: value for name, value in own.items() if value is not None}
        if self.family == "bert":
            return BertConfig.preset(self.preset, vocab_size=vocab_size, causal=causal, **given)
        if "dropout" in given:
            given["hidden_dropout"] = given["dropout"]
        return ModernBertConfig.preset(self.preset, vocab_size=vocab_size, **given)


@dataclass(frozen=True, kw_only=True)
class VocabularyTable:
    """The tokenizer: one that is there, or one to learn from the text."""

    folder: str | None = None
    kind: Literal["wordpiece", "word", "char"] = "wordpiece"
    size: int = 30_000
    lowercase: bool = True
    byte_fallback: bool = False
    min_count: int = 2
    extra_pieces: int = 0  # words of the new text for the vocabulary of model.start


@dataclass(frozen=True, kw_only=True)
class CorpusTable:
    """The text, and how it becomes sentences and documents (see cloze.data.prepare)."""

    sources: tuple[str, ...] = ()  # files, folders and globs
    folder: str | None = None  # of a corpus that several runs share; the run's own when left out
    workers: int | None = None  # processes that prepare it; one for each core when left out
    sentences: Literal["split", "lines"] = "split"
    segmenter: str | None = None
    hold_out: float = 0.01
    column: str | None = None
    skip_broken: bool = False

    def options(self) -> CorpusOptions:
        """As the preparation takes them."""
        return CorpusOptions(**{f.name: getattr(self, f.name) for f in fields(CorpusOptions)})


@dataclass(frozen=True, kw_only=True)
class SamplesTable:
    """What is learned from: pairs of segments, or whole documents."""

    pairs: Literal["nsp", "sop", "none"] = "nsp"
    length: int = 128
    short: float = 0.1

    def sampling(self, seed: int) -> Sampling:
        """As the sampler takes it."""
        return Sampling(pairs=self.pairs, length=self.length, short=self.short, seed=seed)


@dataclass(frozen=True, kw_only=True)
class MaskingTable:
    """Which words are hidden."""

    rate: float = 0.15
    whole_words: bool = False
    split: tuple[float, ...] = (0.8, 0.1, 0.1)

    def masking(self, tokenizer: Tokenizer) -> Masking:
        """With the ids of a tokenizer."""
        plain = Masking.of(tokenizer, rate=self.rate, whole_words=self.whole_words)
        if len(self.split) != 3:  # noqa: PLR2004
            raise ConfigError(
                f"masking.split is {list(self.split)}", fix="give three shares: [0.8, 0.1, 0.1]"
            )
        return replace(plain, split=self.split)


@dataclass(frozen=True, kw_only=True)
class ObjectiveTable:
    """What is learned: masked words, replaced ones, or both (see cloze.objectives.replaced).

    Or, left to right, the next ones (see cloze.objectives.left_to_right).
    """

    kind: Literal["mlm", "detection", "both", "left-to-right"] = "mlm"
    generator_layers: int | None = None  # a quarter of the model's when left out
    generator_width: int | None = None  # the model's when left out
    weight: float | None = None  # of detection, beside words; unsaid, see `importance`
    share: float = 0.5  # of both: batches that detect; in the others the model fills masks
    correction: float = 0.0  # of both: weight of saying what a replaced word was

    def __post_init__(self) -> None:
        number("objective.weight", self.importance, 0.0, 1e6)
        number("objective.share", self.share, 1 / FINEST, 1.0)
        number("objective.correction", self.correction, 0.0, 1e6)
        if self.kind == "both" and self.detecting == 1 and not self.correction:
            raise ConfigError(
                "objective.kind is 'both', and nothing teaches the model to fill",
                fix="give objective.share less than 1, or objective.correction more than 0",
            )

    @property
    def importance(self) -> float:
        """The weight of detection: the paper's, or less where words must move the same weights."""
        if self.weight is not None:
            return self.weight
        return 10.0 if self.kind == "both" else 50.0

    @property
    def causal(self) -> bool:
        """Whether the model may see no later token than its own."""
        return self.kind == "left-to-right"

    @property
    def detecting(self) -> Fraction:
        """The share of the batches that detect."""
        if self.kind == "both":
            return Fraction(self.share).limit_denominator(FINEST)
        return Fraction(self.kind == "detection")

    def shared(self, batching: Batching) -> Batching:
        """As many tokens a step, in so many batches that every step has the share that detects."""
        parts = self.detecting.denominator
        cut = parts // gcd(parts, batching.per_step)
        return replace(batching, tokens=batching.tokens // cut, per_step=batching.per_step * cut)


@dataclass(frozen=True, kw_only=True)
class BatchTable:
    """Tokens that are computed at once, and how many such batches make a step."""

    tokens: int = 4096
    per_step: int = 1

    def batching(self) -> Batching:
        """As the packing takes it."""
        return Batching(tokens=self.tokens, per_step=self.per_step)


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """How long, how exactly, and what is kept."""

    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    epochs: float | None = None
    seed: int = 0
    device: str | None = None  # the best there is when left out
    precision: Literal["float32", "bf16"] = "float32"
    clip_norm: float = 1.0
    recompute: bool = False  # gradient checkpointing
    fast: bool | None = (
        None  # the text on the device and a compiled model; unsaid, on a GPU in bf16
    )
    parallel: Literal["ddp", "fsdp"] = "ddp"
    guard: Literal["stop", "skip"] = "stop"
    log_every: int = 10
    evaluate_every: int = 250
    evaluate_batches: int = 32  # at most, of batch.tokens each
    save_minutes: float = 10.0
    save_every: int | None = None  # steps
    keep: int = 2
    tensorboard: bool = False

    def __post_init__(self) -> None:
        given = [unit for unit in UNITS if getattr(self, unit) is not None]
        if len(given) > 1:
            raise ConfigError(
                f"a budget in {' and in '.join(given)}",
                fix="give one of steps, tokens, minutes, epochs",
            )
        for name in ("log_every", "evaluate_every", "evaluate_batches", "keep"):
            in_range(f"run.{name}", getattr(self, name), 1, 1 << 40)
        if self.epochs is not None:
            number("run.epochs", self.epochs, 1e-6, 1e9)

    def budget(self, tokens_per_epoch: Callable[[], int]) -> Budget:
        """What may be spent; epochs are counted in tokens."""
        if self.epochs is not None:
            return Budget(tokens=max(1, round(self.epochs * tokens_per_epoch())))
        if self.steps is None and self.tokens is None and self.minutes is None:
            raise ConfigError(
                "the run has no budget", fix="give --minutes, --steps, --tokens or --epochs"
            )
        return Budget(steps=self.steps, tokens=self.tokens, minutes=self.minutes)


@dataclass(frozen=True, kw_only=True)
class DistillTable:
    """Whom a student learns from and how (see cloze.objectives.distillation)."""

    teacher: str | None = None  # a folder, or "org/name"
    layers: int | None = None  # of the student; half the teacher's when left out
    family: Literal["distilbert", "bert"] = "distilbert"
    temperature: float = 2.0
    soft: float = 5.0  # weights of the losses
    mlm: float = 2.0
    cosine: float = 1.0

    def __post_init__(self) -> None:
        number("distill.temperature", self.temperature, 1e-3, 1e3)
        for name in ("soft", "mlm", "cosine"):
            number(f"distill.{name}", getattr(self, name), 0.0, 1e6)

    def objective(self, teacher: Encoder) -> Distillation:
        """With the teacher itself."""
        names = ("temperature", "soft", "mlm", "cosine")
        return Distillation(teacher=teacher, **{name: getattr(self, name) for name in names})
