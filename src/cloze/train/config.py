"""The settings of optimizers, training steps and word2vec, importable without torch."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Choices, Config, Flag, Help, Range
from cloze.errors import ConfigError

OptimizerName = Literal["adamw", "muon", "sgd"]

GuardAction = Literal["stop", "skip"]
Parallelism = Literal["ddp", "fsdp"]

# Every name of a data type that commands accept, and the one that recipes use.
DTYPE_NAMES: dict[str, str] = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}

Beta = Annotated[float, Range(0, below=1)]
LearningRate = Annotated[float, Range(0, 10)]


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Config):
    """An optimizer; the defaults are those of BERT (Devlin et al. 2018, appendix A.2)."""

    name: Annotated[
        OptimizerName,
        Help("Optimizer: adamw, muon for the matrices of blocks, or sgd without momentum"),
    ] = "adamw"
    lr: Annotated[
        float,
        Range(0, 1000),
        Help("Peak learning rate of the optimizer: AdamW, or Muon in the recipe fast"),
        Flag("--lr", metavar="LR"),
    ] = 1e-4
    betas: Annotated[tuple[Beta, Beta], Help("Decay rates of AdamW's two moment estimates")] = (
        0.9,
        0.999,
    )
    eps: Annotated[
        float, Range(0, 1), Help("Term in AdamW's denominator, against division by 0")
    ] = 1e-6
    weight_decay: Annotated[
        float,
        Range(0, 1000),
        Help("Weight decay of matrices and embeddings"),
        Flag("--weight-decay", "X"),
    ] = 0.01
    adamw_lr: Annotated[
        float, Range(0, 1000), Help("Muon: peak learning rate of AdamW, for all other weights")
    ] = 1e-3


@dataclass(frozen=True, kw_only=True)
class LoopConfig(Config):
    """How each training step is computed."""

    seed: Annotated[
        int,
        Range(0, (1 << 63) - 1),
        Help("Seed of the random number generators"),
        Flag("--seed", metavar="N"),
    ] = 0
    dtype: Annotated[
        str,
        Choices(*DTYPE_NAMES),
        Help("Data type of the forward pass: float32, or bfloat16 (mixed precision)"),
        Flag("--dtype", metavar="NAME"),
    ] = "float32"
    clip_norm: Annotated[
        float,
        Range(0, math.inf),
        Help("Maximum gradient norm; larger gradients are scaled down (inf: no clipping)"),
    ] = 1.0
    guard: Annotated[
        GuardAction,
        Help(
            "After a step whose loss or gradient is not finite, or whose gradient norm is far "
            "above the recent ones: stop the run, or skip the step"
        ),
    ] = "stop"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", DTYPE_NAMES[self.dtype])


@dataclass(frozen=True, kw_only=True)
class Word2VecVocabulary(Config):
    """How text becomes words."""

    kind: Annotated[
        Literal["word", "spaced"],
        Help("word: split the text into words; spaced: words are separated by spaces already"),
    ] = "word"
    size: Annotated[
        int | None,
        Range(2, 1 << 31),
        Help("Maximum number of words, the most frequent ones (default: all)"),
        Flag("--vocabulary-size", "N"),
    ] = None
    lowercase: Annotated[bool, Help("Convert text to lower case")] = True
    min_count: Annotated[
        int, Range(1, 1 << 40), Help("Minimum number of occurrences of a word")
    ] = 5
    phrases: Annotated[
        int, Range(0, 5), Help("Passes that join words to phrases; two make up to four words")
    ] = 0
    phrase_threshold: Annotated[
        float, Range(0, 1e12), Help("Minimum score of a phrase, as in word2phrase")
    ] = 100.0


@dataclass(frozen=True, kw_only=True)
class Word2VecRun(Config):
    """How vectors are trained; the defaults are those of word2vec.c."""

    kind: Annotated[Literal["skip-gram", "cbow"], Help("Algorithm: skip-gram or cbow")] = (
        "skip-gram"
    )
    objective: Annotated[
        Literal["negative", "hierarchical", "nce"],
        Help("Loss: negative sampling, hierarchical softmax or noise-contrastive estimation"),
    ] = "negative"
    # each word's own window is drawn up to this size, so that near words count more
    window: Annotated[int, Range(1, 1000), Help("Maximum distance of context words")] = 5
    num_negatives: Annotated[int, Range(1, 1000), Help("Negative samples per word")] = 5
    negative_exponent: Annotated[
        float, Range(-10, 10), Help("Negatives are sampled by count to this power")
    ] = 0.75
    subsampling_threshold: Annotated[
        float, Range(0, 1), Help("Words more frequent than this are subsampled (0: none)")
    ] = 1e-3
    lr: Annotated[
        LearningRate | None,
        Help("Initial learning rate (default: 0.025, cbow 0.05)"),
        Flag("--lr", "LR"),
    ] = None
    min_lr: Annotated[LearningRate, Help("Learning rate at the end; it falls linearly")] = 1e-4
    epochs: Annotated[
        int,
        Range(1, 100_000),
        Help("Number of passes over the training data"),
        Flag("--epochs", "N"),
    ] = 5
    seed: Annotated[
        int,
        Range(0, (1 << 63) - 1),
        Help("Seed of the random number generators"),
        Flag("--seed", "N"),
    ] = 0
    # with one thread the vectors are the same every time, bit for bit
    threads: Annotated[int, Range(1, 1024), Help("Number of threads"), Flag("--threads", "N")] = 2
    snapshots: Annotated[
        int,
        Range(0, 40),
        Help("Copies of the vectors to keep, each at half of the training of the next; 0: none"),
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_lr < self.min_lr:
            raise ConfigError(
                f"min_lr {self.min_lr:g} is above the initial learning rate {self.initial_lr:g}",
                fix="choose a smaller min_lr",
            )

    @property
    def initial_lr(self) -> float:
        """The learning rate at the start."""
        if self.lr is not None:
            return self.lr
        return 0.05 if self.kind == "cbow" else 0.025
