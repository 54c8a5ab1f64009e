"""The configuration of the Transformer.  Vaswani et al. 2017."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from cloze.config import Help, Range
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


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """The hyperparameters of a Transformer; the defaults are the paper's base model."""

    family: ClassVar[str] = "transformer"
    FROM_DATA: ClassVar[tuple[str, ...]] = (
        *("vocab_size", "bos_id", "eos_id"),
        "max_trained_length",
    )

    hidden_size: Annotated[HiddenSize, Help("Width of the hidden states")] = 512
    num_layers: Annotated[NumLayers, Help("Number of encoder layers")] = 6
    num_decoder_layers: Annotated[
        NumLayers | None, Help("Number of decoder layers (default: num_layers)")
    ] = None
    num_heads: NumHeads = 8
    intermediate_size: IntermediateSize = 2048
    activation: Annotated[Activation, Help("Activation of the feed-forward networks")] = "relu"
    dropout: Annotated[
        Probability, Help("Dropout probability of the embeddings and of each sub-layer's output")
    ] = 0.1
    attention_dropout: Annotated[
        Probability, Help("Dropout probability of the attention weights; the paper has none")
    ] = 0.0
    norm: Annotated[
        Literal["post", "pre"], Help("Normalise after each sub-layer, or before it")
    ] = "post"
    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-5
    position_encoding: Annotated[
        Literal["interleaved", "halves", "learned"],
        Help("Sinusoids, interleaved or in halves, or learned positions"),
    ] = "interleaved"
    max_positions: Annotated[
        MaxPositions, Help("Number of learned positions; sinusoids have no limit")
    ] = 512
    embeddings: Annotated[
        Literal["shared", "separate"], Help("One embedding matrix for both languages, or two")
    ] = "shared"
    tie_embeddings: Annotated[bool, Help("The output shares the target embedding matrix")] = True
    bos_id: int = 0
    eos_id: int = 0
    # tokens of the longest training sentence, its end included
    max_trained_length: Annotated[int, Range(0, 1 << 30)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_token_ids("bos_id", "eos_id")
        check_heads(self.hidden_size, self.num_heads)
