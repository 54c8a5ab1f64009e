"""The tables `data` (one class for each kind of training data) and `vocabulary` of recipes."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Choices, Config, Flag, Help, Range
from cloze.data.config import SEGMENTER_NAMES, CorpusOptions
from cloze.data.map_blocks import Engine
from cloze.errors import ConfigError
from cloze.text.truncation import Truncation

Fraction = Annotated[float, Range(0, below=1)]
Files = tuple[str, ...]
VocabularySize = Annotated[int, Help("Number of tokens to learn, special tokens included")]
Lowercase = Annotated[
    bool | None,
    Help("Convert text to lower case and remove accents (default: for wordpiece and word)"),
]
ByteFallback = Annotated[bool, Help("Encode rare characters as bytes instead of [UNK]")]
MinCount = Annotated[int, Range(1, 1 << 40), Help("Minimum number of occurrences of a token")]
SkipBad = Annotated[bool, Help("Skip rows that cannot be read, and count them"), Flag("--skip-bad")]
MaxLength = Annotated[
    int | None,
    Range(3, 1 << 20),  # two of them are special tokens
    Help("Maximum number of tokens in a sequence (default: the model's maximum)"),
    Flag("--max-length", "N"),
]
_SIDES = 2
# files with columns; standard input and Python objects may have them
_TABLE = re.compile(r"\.(jsonl?|ndjson|csv|tsv|parquet)(\.\w+)?$|^-$|^<", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TextData(Config):
    """Text whose lines are sentences."""

    sources: Annotated[Files, Help("Files, folders and globs of text")] = ()
    text_column: Annotated[
        str | None,
        Help("Text column of tabular files: name or 1-based number (default: auto-detected)"),
        Flag("--text-column", "COLUMN"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LanguageModelData(TextData):
    """Text to learn from, and text to evaluate by."""

    dev: Annotated[
        Files,
        Help("Text for evaluation (default: the last lines of the training text)"),
        Flag("--dev", "PATH"),
    ] = ()
    hold_out: Annotated[
        float, Range(0, 0.9), Help("Fraction of the lines held out where dev is not given")
    ] = 0.02


@dataclass(frozen=True, kw_only=True)
class CorpusData(CorpusOptions):
    """Running text that is prepared as a corpus of documents."""

    sources: Annotated[Files, Help("Files, folders and globs of text")] = ()
    segmenter: Annotated[
        str | None,
        Choices(*SEGMENTER_NAMES),
        Help("Word segmenter for languages written without spaces: jieba"),
        Flag("--segmenter", "NAME"),
    ] = None
    folder: Annotated[
        str | None,
        Help("Folder of the prepared corpus, to share or reuse it (default: in the run's folder)"),
        Flag("--corpus", "FOLDER"),
    ] = None
    workers: Annotated[
        int | None,
        Range(1, 1 << 10),
        Help("Number of processes that prepare the text (default: one per core)"),
        Flag("--workers", "N"),
    ] = None
    engine: Annotated[
        Engine,
        Help(
            "Where the text is prepared: local, by processes of this machine, or ray, by workers "
            "of a Ray cluster, whose machines share the folder of the corpus"
        ),
        Flag("--engine", "NAME"),
    ] = "local"
    address: Annotated[
        str | None,
        Help("HOST:PORT of a running Ray cluster (default: Ray is started on this machine)"),
        Flag("--address", "HOST:PORT"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LabelledData(Config):
    """Labelled examples, and how they are read."""

    train: Annotated[Files, Help("Labelled data to learn from")] = ()
    dev: Annotated[Files, Help("Labelled data to evaluate by")] = ()
    hold_out: Annotated[
        Fraction, Help("Fraction of the training data held out where dev is not given")
    ] = 0.1
    text_column: Annotated[
        str | None,
        Help("Column of the text: name or 1-based number (default: auto-detected)"),
        Flag("--text-column", "COLUMN", only=("classify",)),
    ] = None
    pair_column: Annotated[
        str | None,
        Help("Column of the second text of a pair (default: auto-detected)"),
        Flag("--pair-column", "COLUMN", only=("classify",)),
    ] = None
    label_column: Annotated[
        tuple[str, ...] | None,
        Help(
            "Column of the label (default: auto-detected); repeated: columns of 0 and 1, one per "
            "label"
        ),
        Flag("--label-column", "COLUMN", only=("classify",)),
    ] = None
    label_delimiter: Annotated[
        str | None,
        Help("Delimiter of several labels in the label column (default: auto-detected)"),
        Flag("--label-delimiter", "TEXT", only=("classify",)),
    ] = None
    is_regression: Annotated[
        bool | None,
        Help("Labels are numbers or classes (default: auto-detected)"),
        Flag("--regression/--classification", only=("classify",)),
    ] = None
    tag_column: Annotated[
        str | None,
        Help("Column of the tags: name or 1-based number (default: auto-detected)"),
        Flag("--tag-column", "COLUMN", only=("tag",)),
    ] = None
    tag_scheme: Annotated[
        str | None,
        Help("Tag scheme of the data: IOB1, IOB2, BIOES or BMES (default: auto-detected)"),
        Flag("--tag-scheme", "NAME", only=("tag",)),
    ] = None
    skip_bad: SkipBad = False
    max_length: MaxLength = None
    truncation: Annotated[
        Truncation | None,
        Help(
            "How to shorten texts that are too long: head, tail or head+tail keep that part; "
            "window splits the text into overlapping windows (default: window for answer and tag, "
            "else head)"
        ),
        Flag("--truncation", "POLICY"),
    ] = None
    overlap: Annotated[
        int | None,
        Range(0, 1 << 20),
        Help("Window overlap in tokens (default: a quarter of the window)"),
        Flag("--overlap", "N"),
    ] = None
    transformation: Annotated[
        Literal["entailment", "similarity", "none"] | None,
        Help(
            "How pairs become inputs: entailment (first text, delimiter, second text), similarity "
            "(both orders, whose vectors are added), or none: as the tokenizer has them (default: "
            "entailment for a causal model, else the tokenizer's)"
        ),
        Flag("--transformation", "NAME", only=("classify", "answer", "choose")),
    ] = None
    context: Annotated[
        bool,
        Help("Encode each sentence with as many adjacent sentences of its document as fit"),
        Flag("--context", only=("tag",)),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ParallelData(Config):
    """Two aligned files, the source and the target, or tables with a column for each."""

    train: Annotated[Files, Help("Source and target files, or tables, to learn from")] = ()
    dev: Annotated[Files, Help("Source and target files, or tables, to evaluate by")] = ()
    text_column: Annotated[
        str | None,
        Help("Column of the source: name or 1-based number (default: auto-detected)"),
        Flag("--text-column", "COLUMN"),
    ] = None
    target_column: Annotated[
        str | None,
        Help("Column of the target: translations, summaries (default: auto-detected)"),
        Flag("--target-column", "COLUMN"),
    ] = None
    lead_as_summary: Annotated[
        bool,
        Help(
            "Learn to summarize from running text: of each document, a title and paragraphs on "
            "lines of their own, the first paragraph is the summary of the others"
        ),
        Flag("--lead-as-summary"),
    ] = False
    max_length: Annotated[
        int,
        Range(2, 1 << 20),
        Help("Maximum number of tokens in a sentence or a summary; longer pairs are left out"),
        Flag("--max-length", "N"),
    ] = 256
    max_source_length: Annotated[
        int | None,
        Range(3, 1 << 20),
        Help(
            "Number of tokens that sources are truncated to (default: for summaries as many as "
            "the positions allow, at most 1024; for translations none, and longer pairs are left "
            "out)"
        ),
        Flag("--max-source-length", "N"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train", "dev"):
            files = getattr(self, name)
            if len(files) not in (0, _SIDES) and not self.lead_as_summary:
                if any(_TABLE.search(one) for one in files):
                    continue
                raise ConfigError(
                    f"{name} names {len(files)} file{'s' * (len(files) > 1)} of plain lines",
                    fix="name two: the source, then the target; or a table (.jsonl, .csv, .tsv, "
                    ".parquet)",
                )


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions(Config):
    """How `cloze vocabulary` trains a tokenizer."""

    kind: Annotated[
        Literal["wordpiece", "bpe", "word", "char"],
        Help("Type of tokenizer: wordpiece, bpe, word or char"),
        Flag("--kind", "KIND"),
    ] = "wordpiece"
    size: Annotated[VocabularySize, Flag("--size", "N")] = 30_000
    lowercase: Annotated[Lowercase, Flag("--lowercase/--keep-case")] = None
    strip_accents: Annotated[
        bool | None,
        Help("Remove accents, or keep them (default: as --lowercase)"),
        Flag("--strip-accents/--keep-accents"),
    ] = None
    chinese: Annotated[
        bool,
        Help("Treat every Chinese character as a word; without effect for --kind bpe"),
        Flag("--chinese/--no-chinese"),
    ] = True
    byte_fallback: Annotated[ByteFallback, Flag("--byte-fallback")] = False
    min_count: Annotated[MinCount, Flag("--min-count", "N")] = 2


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(Config):
    """A tokenizer; each job has its own defaults for kind and size."""

    folder: Annotated[
        str | None,
        Help("Folder of a tokenizer to use (default: one is learned from the text)"),
        Flag("--vocabulary", "FOLDER"),
    ] = None
    kind: Annotated[
        Literal["wordpiece", "bpe", "word", "spaced", "char", "midi"],
        Help(
            "Type of tokenizer; spaced: words as they are separated by spaces in the text; midi: "
            "the events of music"
        ),
    ] = "wordpiece"
    size: Annotated[VocabularySize, Flag("--vocabulary-size", "N")] = 30_000
    lowercase: Lowercase = None
    byte_fallback: ByteFallback = False
    min_count: MinCount = 2
    extra_tokens: Annotated[
        int,
        Range(0, 1_000_000),
        Help("With --init-from: number of frequent words of the new text to add to the vocabulary"),
        Flag("--extra-tokens", "N"),
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            self._check_size()
        except ConfigError as error:  # the tokenizer calls the setting by another name
            problem = error.problem.replace("vocab_size", "size")
            raise ConfigError(problem, fix=error.fix) from None

    def _check_size(self) -> None:
        # imported here, as it takes longer than all recipes together
        from cloze.text.tokenizer_training import check_vocabulary, check_whitespace_vocabulary

        if self.kind == "spaced":
            check_whitespace_vocabulary(vocab_size=self.size, min_count=self.min_count)
        else:
            check_vocabulary(
                kind=self.kind,
                vocab_size=self.size,
                min_count=self.min_count,
                byte_fallback=self.byte_fallback,
            )
