"""The settings of corpora, samples and batches, importable without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cloze.config import Config, Flag, Help, Range, one_of

Pairs: TypeAlias = Literal["nsp", "sop", "none"]
Sentences: TypeAlias = Literal["split", "lines"]
# what two texts of a pair are, if it is made from running text
PairKind: TypeAlias = Literal[
    "title", "neighbours", "inverse-cloze", "random-spans", "word-deletion", "simcse"
]
Segmenter: TypeAlias = Callable[[str], list[str]]

SEGMENTER_NAMES = ("jieba",)
MIN_LENGTH = 8  # tokens of a sample
PACKING_WINDOW = 512  # number of samples among which one is chosen to fill a gap in a batch

Probability = Annotated[float, Range(0, 1)]


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Config):
    """How documents are split into samples.

    `pairs` is "nsp" for next sentence prediction (Devlin et al. 2018), "sop" for sentence order
    prediction (Lan et al. 2019), or "none" for full sentences of one document, where each token
    occurs once per epoch (DOC-SENTENCES in Liu et al. 2019).
    """

    pairs: Annotated[
        Pairs,
        Help(
            "Task on pairs of segments: nsp (next sentence prediction), sop (sentence order "
            "prediction) or none"
        ),
        Flag("--pairs", "TASK"),
    ] = "nsp"
    max_length: Annotated[
        int,
        Range(MIN_LENGTH, 1 << 20),
        Help("Maximum number of tokens in a training sequence, special tokens included"),
        Flag("--max-length", "N"),
    ] = 128
    short_seq_prob: Annotated[
        Probability, Help("Probability that a document is split into shorter samples")
    ] = 0.1
    chunk_length: Annotated[
        int | None,
        Range(2, 1 << 12),
        Help(
            "Samples begin with the first token of their document or a multiple of so many tokens "
            "after it, as the chunks of RETRO (default: at a sentence)"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(Config):
    """How text is prepared as a corpus."""

    sentences: Annotated[
        Sentences,
        Help("Sentences of the text: split (rule-based splitter) or lines (one per line)"),
    ] = "split"
    # finds words in languages written without spaces: a name or, in Python, a function
    segmenter: Segmenter | str | None = None
    hold_out: Annotated[
        float,
        Range(0, below=1),
        Help("Fraction of the documents held out for evaluation, chosen by a hash of their text"),
    ] = 0.01
    text_column: Annotated[
        str | None,
        Help("Text column of tabular files: name or 1-based number (default: auto-detected)"),
        Flag("--text-column", "COLUMN"),
    ] = None
    skip_bad: Annotated[bool, Help("Skip rows that cannot be read, and count them")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.segmenter, str):
            one_of("segmenter", self.segmenter, SEGMENTER_NAMES)


@dataclass(frozen=True, kw_only=True)
class Batching(Config):
    """How samples are batched: `per_step` batches of `tokens` tokens a step, over all processes."""

    tokens: Annotated[int, Range(1, 1 << 31)] = 8192
    per_step: Annotated[int, Range(1, 1 << 20)] = 1
    window: Annotated[int | None, Range(1, 1 << 20)] = PACKING_WINDOW
