"""What the configurations of BERT, DistilBERT and ModernBERT have in common."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from cloze.config import Help, Range, in_range
from cloze.models.configs.base import (
    Activation,
    HiddenSize,
    IntermediateSize,
    MaxPositions,
    ModelConfig,
    NumHeads,
    NumLayers,
    Probability,
    check_heads,
)

MAX_LABELS = 1 << 16
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]
MULTI_LABEL = "multi_label_classification"  # several labels per text
DEFAULT_LABELS = ("LABEL_0", "LABEL_1")  # of Hugging Face configurations without label names


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(ModelConfig):
    """The hyperparameters of an encoder; the defaults are those of BERT-base."""

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "pad_id", "labels", "problem_type")

    hidden_size: Annotated[HiddenSize, Help("Width of the hidden states")] = 768
    num_layers: NumLayers = 12
    num_heads: NumHeads = 12
    intermediate_size: IntermediateSize = 3072
    max_positions: MaxPositions = 512
    activation: Annotated[Activation, Help("Activation of the feed-forward networks")] = "gelu"
    dropout: Annotated[Probability, Help("Dropout probability of the hidden states")] = 0.1
    attention_dropout: Annotated[
        Probability, Help("Dropout probability of the attention weights")
    ] = 0.1
    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-12
    init_std: Annotated[float, Range(0, 10), Help("Standard deviation of the initial weights")] = (
        0.02
    )
    pad_id: int | None = 0
    tie_embeddings: Annotated[
        bool, Help("The masked-LM head shares the token embedding matrix")
    ] = True
    labels: tuple[str, ...] = DEFAULT_LABELS
    problem_type: ProblemType | None = None  # None: derived from the labels

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad_id is not None:
            self._check_token_ids("pad_id")
        check_heads(self.hidden_size, self.num_heads)
        in_range("the number of labels", len(self.labels), 1, MAX_LABELS)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:  # noqa: ANN401
        """One of the sizes in `PRESETS`, with changes.

        With another `hidden_size`, `intermediate_size` follows it unless it is given too.
        """
        size = changes.get("hidden_size")
        standard = cls.PRESETS.get(name, {}).get("hidden_size")
        if size is not None and size != standard:
            changes = {"intermediate_size": cls.scale_intermediate_size(size), **changes}
        return super().preset(name, **changes)

    @staticmethod
    def scale_intermediate_size(hidden_size: int) -> int:
        """The usual inner width of the feed-forward networks for a hidden size."""
        return 4 * hidden_size
