"""Which part of a model is trained, and the task model on its features."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.checkpoint.task import MAX_KERNEL_SIZE
from cloze.config import Config, Flag, Help, Range, one_of
from cloze.errors import ConfigError

TRANSFERS = ("full", "last-N", "head", "features")
# the names that `tasks.features` knows
LAYER_NAMES = (
    "embeddings",
    "second-to-last",
    "last",
    "sum-last-4",
    "concat-last-4",
    "sum-all",
    "scalar-mix",
)


@dataclass(frozen=True, kw_only=True)
class TransferConfig(Config):
    """Which part of the model is trained.

    full: all of it; last-N: the last N layers; head: the head on a frozen encoder; features: the
    encoder's vectors are computed once, and a small model learns from them.
    """

    kind: Annotated[
        str,
        Help(
            "What is trained: full, last-N (the last N layers), head, or features: a small model "
            "on the embeddings of the frozen encoder"
        ),
        Flag("--transfer", "KIND"),
    ] = "full"
    layer_decay: Annotated[
        float,
        Range(0, 1),
        Help("Learning rate of a layer as a fraction of that of the layer above it"),
        Flag("--layer-decay", "X"),
    ] = 1.0
    unfreeze_every: Annotated[
        float,
        Range(0, 1e6),
        Help(
            "Number of epochs after which the next layer below is unfrozen; 0 trains all layers "
            "from the start"
        ),
        Flag("--unfreeze-every", "EPOCHS"),
    ] = 0.0
    dropout: Annotated[
        float | None, Range(0, 1), Help("Dropout probability (default: the model's)")
    ] = None
    concat_pooling: Annotated[
        bool,
        Help(
            "Recurrent models: the classifier reads the last state, the maximum and the mean of "
            "all states; otherwise the last state only"
        ),
    ] = True
    gradient_length: Annotated[
        int | None,
        Range(1, 1 << 20),
        Help(
            "Recurrent models: number of tokens at the end of a text that have gradients (BPT3C; "
            "default: 1400)"
        ),
    ] = None
    layers: Annotated[
        str,
        Help(
            f"With --recipe features: layers, one of {', '.join(LAYER_NAMES)} (a weighted sum of "
            "all, with learned weights)"
        ),
        Flag("--layers", "CHOICE"),
    ] = "last"
    pooling: Annotated[
        Literal["cls", "mean", "max"] | None,
        Help(
            "Pooling over the tokens of a text, for the task embed (mean or cls; default: mean) or "
            "with --recipe features (cls, mean or max; default: cls, or mean for a model without "
            "[CLS])"
        ),
        Flag("--pooling", "NAME"),
    ] = None
    classifier: Annotated[
        Literal["linear", "cnn", "bilstm"],
        Help(
            "With --recipe features: classifier of texts: linear (logistic regression), cnn "
            "(convolutions over the tokens) or bilstm (over the words)"
        ),
        Flag("--classifier", "KIND", only=("classify",)),
    ] = "linear"
    tagger: Annotated[
        Literal["bilstm", "linear"],
        Help(
            "With --recipe features: classifier of words: bilstm, or linear (logistic regression "
            "of each word alone)"
        ),
        Flag("--tagger", "KIND", only=("tag",)),
    ] = "bilstm"
    mix_penalty: Annotated[
        float,
        Range(0, 1e12),
        Help(
            "With --layers scalar-mix: L2 penalty of the scores of the layers; 1 gives nearly "
            "equal weights"
        ),
    ] = 1e-3
    mix_weights: Annotated[
        Literal["learned", "equal"],
        Help("With --layers scalar-mix: the weights of the layers are learned, or stay equal"),
    ] = "learned"
    mix_scale: Annotated[
        Literal["learned", "fixed"] | None,
        Help(
            "With --recipe features: whether a task model learns the scale γ of the contextual "
            "vectors, or it stays 1 (default: learned with --layers scalar-mix, else fixed)"
        ),
    ] = None
    contextual: Annotated[
        Literal["input", "output", "both", "none"],
        Help(
            "With --recipe features and a BiLSTM: where the model's vectors are added: at its "
            "input, at its output, both, or none (the baseline with word embeddings only)"
        ),
        Flag("--contextual", "PLACE"),
    ] = "input"
    contextual_dropout: Annotated[
        float,
        Range(0, 1),
        Help("With --recipe features and a BiLSTM: dropout probability of the model's vectors"),
    ] = 0.0
    embedding_size: Annotated[
        int,
        Range(0, 1 << 15),
        Help(
            "With --recipe features and a BiLSTM: size of its own word embeddings, which start at "
            "random; 0: it has none"
        ),
    ] = 0
    word_vectors: Annotated[
        str | None,
        Help(
            "With --recipe features and a BiLSTM: folder or file of word vectors that its own word "
            "embeddings start from"
        ),
        Flag("--word-vectors", "PATH"),
    ] = None
    pairs: Annotated[
        Literal["joint", "compared"] | None,
        Help(
            "With --recipe features: a pair of texts is read as one sequence (joint), or each text "
            "alone and the vectors u and v are compared: [u; v; |u − v|; u·v] (default: joint if "
            "the model reads pairs)"
        ),
    ] = None
    l2_penalty: Annotated[
        float,
        Range(0, 1e12),
        Help("With --recipe features: L2 penalty of the logistic regression of texts (1/C)"),
    ] = 1.0
    hidden_size: Annotated[
        int,
        Range(1, 1 << 15),
        Help(
            "With --recipe features: hidden size of the BiLSTM for words (per direction) or of the "
            "CNN"
        ),
    ] = 768
    num_layers: Annotated[
        int,
        Range(1, 16),
        Help("With --recipe features: number of layers of the BiLSTM for words or of the CNN"),
    ] = 2
    kernel_size: Annotated[
        int,
        Range(1, MAX_KERNEL_SIZE),
        Help("With --classifier cnn: number of neighbours that a layer joins, an odd number"),
    ] = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"full|head|features|last-[1-9][0-9]*", self.kind):
            raise ConfigError(f"kind is {self.kind!r}", fix=f"use one of {', '.join(TRANSFERS)}")
        if not re.fullmatch(r"[-0-9, ]+", self.layers):
            one_of("layers", self.layers, LAYER_NAMES)
        # With other kinds these have no effect, and a score would be mistaken for another model's.
        for name, defaults in (
            ("layers", ("last",)),
            ("pooling", (None, "cls")),
            ("classifier", ("linear",)),
            ("tagger", ("bilstm",)),
            ("contextual", ("input",)),
            ("word_vectors", (None,)),
        ):
            value = getattr(self, name)
            if value not in defaults and self.kind != "features":
                raise ConfigError(
                    f"{name} is {value!r}, which has no effect with transfer.kind {self.kind!r}",
                    fix=f"leave --{name.replace('_', '-')} out, or use --transfer features",
                )

        self._check_task_model()

    def _check_task_model(self) -> None:
        """Raise an error if settings of the task model on features exclude each other."""
        if self.classifier == "cnn" and self.pooling not in (None, "cls"):
            raise ConfigError(
                f"pooling is {self.pooling!r}, but a cnn reads all tokens and takes their maximum",
                fix="leave --pooling out, or use --classifier linear",
            )
        if self.classifier == "bilstm" and self.pooling == "cls":
            raise ConfigError(
                "pooling is 'cls', but a bilstm is pooled over all words",
                fix="use --pooling max or mean",
            )
        if self.contextual == "none" and not (self.embedding_size or self.word_vectors):
            raise ConfigError(
                "contextual is 'none', but the task model has no word embeddings of its own either",
                fix="use --word-vectors PATH, or --set transfer.embedding_size=100",
            )
        if self.kernel_size % 2 == 0:
            raise ConfigError(
                f"kernel_size is {self.kernel_size}, which has no token in the middle",
                fix=f"use an odd number, such as {self.kernel_size + 1}",
            )

    def count_trained_layers(self, layers: int) -> int:
        """The number of layers that are trained, from the top."""
        if self.kind.startswith("last-"):
            return min(layers, int(self.kind.removeprefix("last-")))
        return layers if self.kind == "full" else 0
