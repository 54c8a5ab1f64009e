"""The recipe of sentence embeddings: contrastive training on pairs of texts."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cloze.config import Config, Flag, Help, Range, to_mapping
from cloze.data.config import PairKind
from cloze.errors import ConfigError
from cloze.make.recipe.data import Files, Fraction, MaxLength, SkipBad
from cloze.make.recipe.model import ModelSource
from cloze.make.recipe.run import SelectingRun
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

Count = Annotated[int, Range(1, 1 << 30)]
MAX_SIZE = 1 << 20  # of a vector


@dataclass(frozen=True, kw_only=True)
class PairData(Config):
    """Pairs of texts, or running text from which pairs are made."""

    train: Annotated[Files, Help("Pairs of texts, or running text, to learn from")] = ()
    dev: Annotated[Files, Help("Pairs or scored pairs to evaluate by")] = ()
    hold_out: Annotated[
        Fraction,
        Help("Fraction of the training pairs held out where dev is not given"),
    ] = 0.1
    max_dev: Annotated[Count, Help("Number of pairs that are held out, at most")] = 1000
    retrieval: Annotated[
        str | None,
        Help(
            "Retrieval set to evaluate by: a folder with corpus.jsonl, queries.jsonl and qrels "
            "(the layout of BEIR); its nDCG@10 selects the best model"
        ),
        Flag("--retrieval", "FOLDER"),
    ] = None
    text_column: Annotated[
        str | None,
        Help("Column of the anchor: name or 1-based number (default: auto-detected)"),
        Flag("--text-column", "COLUMN"),
    ] = None
    pair_column: Annotated[
        str | None,
        Help("Column of the positive (default: auto-detected)"),
        Flag("--pair-column", "COLUMN"),
    ] = None
    negative_column: Annotated[
        tuple[str, ...],
        Help("Column of a negative; may be repeated (default: auto-detected)"),
        Flag("--negative-column", "COLUMN"),
    ] = ()
    score_column: Annotated[
        str | None,
        Help("Column of the score: how similar the two texts are (default: auto-detected)"),
        Flag("--score-column", "COLUMN"),
    ] = None
    make_pairs: Annotated[
        tuple[PairKind, ...],
        Help(
            "Make pairs from running text: title (with a paragraph), neighbours (two sentences), "
            "inverse-cloze (a sentence and the rest of its paragraph), random-spans (two random "
            "spans of a paragraph), word-deletion (a sentence with and without some of its words) "
            "or simcse (a sentence twice); may be repeated (default: simcse if the data are "
            "running text)"
        ),
        Flag("--make-pairs", "KIND"),
    ] = ()
    pairs_per_document: Annotated[
        Count | None,
        Help("Number of pairs of each kind that are made from a document, at most (default: all)"),
    ] = None
    batch_by_kind: Annotated[
        bool,
        Help(
            "Each batch has pairs of one kind of --make-pairs, so that all negatives are of the "
            "form of the positive"
        ),
        Flag("--batch-by-kind"),
    ] = False
    same_document_pairs: Annotated[
        Count,
        Help(
            "Number of pairs of a document that are in the same batch, with --make-pairs: their "
            "texts are similar, so they are hard negatives of each other (default: 1, pairs in "
            "random order)"
        ),
        Flag("--same-document-pairs", "N"),
    ] = 1
    hard_negatives: Annotated[
        int,
        Range(0, 1000),
        Help(
            "Number of hard negatives to mine for each anchor: the most similar positives of "
            "other anchors"
        ),
        Flag("--hard-negatives", "K"),
    ] = 0
    negative_margin: Annotated[
        float,
        Range(0, 1),
        Help(
            "Margin of hard negatives: texts whose similarity to the anchor is more than "
            "(1 − margin) times that of its positive are left out, as they may be positives"
        ),
        Flag("--negative-margin", "X"),
    ] = 0.05
    mine_every: Annotated[
        Count | None,
        Help("Epochs after which hard negatives are mined again (default: only at the start)"),
    ] = None
    skip_bad: SkipBad = False
    max_length: MaxLength = None

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = (self.pair_column, self.score_column, *self.negative_column)
        if self.make_pairs and any(columns):
            raise ConfigError(
                "data.make_pairs makes pairs from running text, but columns of pairs are given",
                fix="leave --make-pairs out, or --pair-column, --negative-column, --score-column",
            )
        if self.same_document_pairs > 1 and not self.make_pairs:
            raise ConfigError(
                "data.same_document_pairs needs documents, but the rows are pairs or single texts",
                fix="make pairs from running text: --make-pairs KIND",
            )


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(Config):
    """The vector of a text, and what the saved model has besides."""

    pooling: Annotated[
        Literal["mean", "cls"] | None,
        Help(
            "Vector of a text: mean of its tokens, or cls: the first token (default: that of the "
            "folder, else mean)"
        ),
        Flag("--pooling", "MODE"),
    ] = None
    normalize: Annotated[
        bool,
        Help("The saved model normalizes its vectors to length 1"),
        Flag("--normalize/--no-normalize"),
    ] = True
    keep_mlm_head: Annotated[
        bool,
        Help("The saved model keeps its masked-LM head; --mlm-weight implies it"),
        Flag("--keep-mlm-head"),
    ] = False
    dropout: Annotated[
        float | None,
        Range(0, below=1),
        Help(
            "Dropout probability of the vectors in training; the masked LM has none (default: the "
            "model's; for simcse 0.1 if that is 0)"
        ),
        Flag("--dropout", "P"),
    ] = None
    max_length: Annotated[
        int | None,
        Range(3, 1 << 20),
        Help("Maximum number of tokens that the saved model reads (default: as data.max_length)"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig(Config):
    """The loss of the vectors, and the weight of the masked LM's."""

    kind: Annotated[
        Literal["multiple-negatives", "cosent", "cosine"] | None,
        Help(
            "Loss: multiple-negatives (the positive among all texts of the batch), cosent (order "
            "of the scores) or cosine (squared error of the scores) (default: cosent for scored "
            "pairs, else multiple-negatives)"
        ),
        Flag("--loss", "NAME"),
    ] = None
    scale: Annotated[
        float,
        Range(above=0, high=10_000),
        Help("Factor of the cosines in the softmax, 1 / temperature"),
        Flag("--scale", "X"),
    ] = 20.0
    symmetric: Annotated[
        bool,
        Help("multiple-negatives: also find the anchor of each positive"),
        Flag("--symmetric"),
    ] = False
    matryoshka: Annotated[
        str,
        Help(
            "Sizes that vectors may be shortened to, maybe with weights, such as 320,160,80 or "
            "320:1,160:0.5 (default: the full size only)"
        ),
        Flag("--matryoshka", "SIZES"),
    ] = ""
    mlm_weight: Annotated[
        float,
        Range(0, 1e6),
        Help(
            "Weight of the masked-LM loss on the same texts, so that the model does not forget to "
            "predict masked words"
        ),
        Flag("--mlm-weight", "X"),
    ] = 0.0
    mlm_probability: Annotated[
        float, Range(above=0, high=1), Help("Fraction of the tokens that are masked for that loss")
    ] = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        self.matryoshka_sizes  # noqa: B018 - checked once
        if self.symmetric and self.kind in ("cosent", "cosine"):
            raise ConfigError(
                f"loss.symmetric has no effect on the loss {self.kind}",
                fix="leave --symmetric out, or use --loss multiple-negatives",
            )

    @property
    def matryoshka_sizes(self) -> dict[int, float]:
        """The weight of each size; none: only the full size."""
        found: dict[int, float] = {}
        for part in filter(None, self.matryoshka.replace(" ", "").split(",")):
            size, _, weight = part.partition(":")
            try:
                number, factor = int(size), float(weight or 1)
            except ValueError:
                number, factor = 0, 0.0
            if not (1 <= number <= MAX_SIZE and 0 <= factor <= 1e6):  # noqa: PLR2004
                raise ConfigError(
                    f"loss.matryoshka is {self.matryoshka!r}, where {part!r} is not a size",
                    fix="use sizes, such as 320,160,80, or sizes with weights: 320:1,160:0.5",
                )
            found[number] = factor
        return found


@dataclass(frozen=True, kw_only=True)
class EmbeddingRun(SelectingRun):
    """A run that trains sentence embeddings."""

    batch_size: Annotated[
        Count,
        Help("Number of examples in a step; for pairs, more of them are more negatives"),
        Flag("--batch-size", "N"),
    ] = 128
    part_tokens: Annotated[
        Count | None,
        Help(
            "Number of tokens that are embedded at once; the gradients are those of the whole "
            "batch, in less memory (default: 4,096; 32,768 on a GPU)"
        ),
        Flag("--part-tokens", "N"),
    ] = None
    fast: Annotated[
        bool | None,
        Help("Compile the model for rows of one shape (default: on a GPU in bfloat16)"),
    ] = None
    eval_batch_tokens: Annotated[Count, Help("Number of tokens in a batch of evaluations")] = 4096


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecipe(Config):
    """One run of contrastive training."""

    task: Annotated[Literal["embed"], Help("The task to learn")] = "embed"
    model: ModelSource = field(default_factory=ModelSource)
    data: PairData = field(default_factory=PairData)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    loss: ContrastiveConfig = field(default_factory=ContrastiveConfig)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=5e-5))
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=0.1))
    run: EmbeddingRun = field(default_factory=EmbeddingRun)

    def to_file(self) -> dict[str, Any]:
        """As the run's file has it."""
        return to_mapping(self)
