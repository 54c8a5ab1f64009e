"""The tables of a recipe for raw text, each checked as it is made.

Most stand for something that the run makes of them, and checks itself: a table makes it once too,
so that a value it refuses is told with the recipe and not after an hour of preparation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import gcd
from typing import Literal

import numpy as np

from cloze.config import check_choices, in_range, number, one_of
from cloze.data.encode import Sentences
from cloze.data.packing import Batching
from cloze.data.prepare import Options as CorpusOptions
from cloze.data.samples import Pairs, Sampling
from cloze.errors import ConfigError
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.encoder import Encoder
from cloze.objectives.distillation import Distillation
from cloze.objectives.masking import Masking
from cloze.text.tokenizer import Tokenizer
from cloze.text.tokenizer_training import check_vocabulary

PRESETS: dict[str, Mapping[str, object]] = {
    "bert": BertConfig.PRESETS,
    "modernbert": ModernBertConfig.PRESETS,
}
MODERN = ("global_attention_every", "window_size", "rope_theta")  # settings of that family alone
FINEST = 16  # parts that a batch is cut into, at most, for two tasks to share it


@dataclass(frozen=True, kw_only=True)
class ShapeTable:
    """The model; a size that is unsaid is the preset's."""

    init_from: str | None = None  # go on from this model, which brings its own shape
    family: Literal["bert", "modernbert"] = "bert"
    preset: str = "mini"
    num_layers: int | None = None
    hidden_size: int | None = None
    num_heads: int | None = None
    intermediate_size: int | None = None
    max_positions: int = 512
    activation: str = "gelu"
    dropout: float | None = None  # the family's own: 0.1 of a BERT, none of a ModernBERT
    attention_dropout: float | None = None
    init_std: float = 0.02  # of the first weights
    sines: bool = False  # learned positions begin as sine waves instead of noise
    global_attention_every: int | None = (
        None  # of a ModernBERT: one layer of so many looks at all of a text
    )
    window_size: int | None = None  # of a ModernBERT: places that the other layers see
    rope_theta: float | None = (
        None  # of a ModernBERT: base of the rotary angles in layers that see all
    )

    def __post_init__(self) -> None:
        check_choices(self)
        one_of("model.preset", self.preset, PRESETS[self.family])
        said = [name for name in MODERN if getattr(self, name) is not None]
        if said and self.family != "modernbert":
            raise ConfigError(
                f"model.{said[0]} is a setting of a ModernBERT",
                fix='leave it out, or set model.family to "modernbert"',
            )
        self.config(vocab_size=1 << 15)

    def config(self, vocab_size: int, *, causal: bool = False) -> BertConfig | ModernBertConfig:
        """The shape for a vocabulary; only a BERT can be causal."""
        apart = ("init_from", "family", "preset", "sines")
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        given = {name: value for name, value in own.items() if value is not None}
        if self.family == "bert":
            return BertConfig.preset(self.preset, vocab_size=vocab_size, is_causal=causal, **given)
        if "dropout" in given:
            given["ffn_dropout"] = given["dropout"]
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

    def __post_init__(self) -> None:
        check_choices(self)
        check_vocabulary(
            kind=self.kind,
            vocab_size=self.size,
            min_count=self.min_count,
            byte_fallback=self.byte_fallback,
        )
        in_range("vocabulary.extra_pieces", self.extra_pieces, 0, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class CorpusTable:
    """The text, and how it becomes sentences and documents (see cloze.data.prepare)."""

    sources: tuple[str, ...] = ()  # files, folders and globs
    folder: str | None = None  # of a corpus that several runs share; the run's own when left out
    workers: int | None = None  # processes that prepare it; one for each core when left out
    sentences: Sentences = "split"
    segmenter: str | None = None
    hold_out: float = 0.01
    column: str | None = None
    skip_broken: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        self.options()
        if self.workers is not None:
            in_range("corpus.workers", self.workers, 1, 1 << 10)

    def options(self) -> CorpusOptions:
        """As the preparation takes them."""
        return CorpusOptions(**{f.name: getattr(self, f.name) for f in fields(CorpusOptions)})


@dataclass(frozen=True, kw_only=True)
class SamplesTable:
    """What is learned from: pairs of segments, or whole documents."""

    pairs: Pairs = "nsp"
    length: int = 128
    short: float = 0.1

    def __post_init__(self) -> None:
        self.sampling(seed=0)

    def sampling(self, seed: int) -> Sampling:
        """As the sampler takes it."""
        return Sampling(pairs=self.pairs, length=self.length, short=self.short, seed=seed)


@dataclass(frozen=True, kw_only=True)
class MaskingTable:
    """Which words are hidden."""

    rate: float = 0.15
    whole_words: bool = False
    split: tuple[float, float, float] = (0.8, 0.1, 0.1)

    def __post_init__(self) -> None:
        Masking(mask_id=0, vocab=np.arange(1), rate=self.rate, split=self.split)

    def masking(self, tokenizer: Tokenizer) -> Masking:
        """With the ids of a tokenizer."""
        plain = Masking.of(tokenizer, rate=self.rate, whole_words=self.whole_words)
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
        check_choices(self)
        for name in ("generator_layers", "generator_width"):
            if getattr(self, name) is not None:
                in_range(f"objective.{name}", getattr(self, name), 1, 1 << 20)
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

    def __post_init__(self) -> None:
        self.batching()

    def batching(self) -> Batching:
        """As the packing takes it."""
        return Batching(tokens=self.tokens, per_step=self.per_step)


@dataclass(frozen=True, kw_only=True)
class DistillTable:
    """Whom a student learns from and how (see cloze.objectives.distillation)."""

    teacher: str | None = None  # a folder, or "org/name"
    layers: int | None = None  # of the student; half the teacher's when left out
    # of the student; unsaid, modernbert of such a teacher, distilbert of any other
    family: Literal["distilbert", "bert", "modernbert"] | None = None
    temperature: float = 2.0
    soft: float = 5.0  # weights of the losses
    mlm: float = 2.0
    cosine: float = 1.0

    def __post_init__(self) -> None:
        check_choices(self)
        if self.layers is not None:
            in_range("distill.layers", self.layers, 1, 1 << 20)
        number("distill.temperature", self.temperature, 1e-3, 1e3)
        for name in ("soft", "mlm", "cosine"):
            number(f"distill.{name}", getattr(self, name), 0.0, 1e6)

    def objective(self, teacher: Encoder) -> Distillation:
        """With the teacher itself."""
        names = ("temperature", "soft", "mlm", "cosine")
        return Distillation(teacher=teacher, **{name: getattr(self, name) for name in names})
