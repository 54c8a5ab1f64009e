"""The configuration of the recurrent sequence-to-sequence model."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import HiddenSize, ModelConfig, Probability


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(ModelConfig):
    """The hyperparameters of a recurrent translator; both languages share one vocabulary."""

    family: ClassVar[str] = "seq2seq"
    FROM_DATA: ClassVar[tuple[str, ...]] = (
        *("vocab_size", "bos_id", "eos_id"),
        "max_trained_length",
    )

    cell: Annotated[Literal["rnn", "lstm", "gru"], Help("Kind of recurrent cell")] = "gru"
    hidden_size: Annotated[
        HiddenSize, Help("Width of the decoder, and of both directions of the encoder together")
    ] = 512
    embedding_size: Annotated[HiddenSize, Help("Width of the token embeddings")] = 256
    num_layers: Annotated[
        int, Range(1, 64), Help("Number of layers of the encoder and of the decoder")
    ] = 1
    bidirectional: Annotated[bool, Help("The encoder reads in both directions")] = True
    attention: Annotated[Literal["none", "bahdanau", "luong"], Help("Kind of attention")] = (
        "bahdanau"
    )
    attention_score: Annotated[
        Literal["dot", "general", "concat", "cosine"], Help("Score function of Luong's attention")
    ] = "general"
    input_feeding: Annotated[
        bool, Help("Luong's attention: the attentional state enters the next step")
    ] = True
    dropout: Annotated[Probability, Help("Dropout probability")] = 0.2
    embeddings: Annotated[
        Literal["shared", "separate"], Help("One embedding matrix for both languages, or two")
    ] = "shared"
    bos_id: int = 0
    eos_id: int = 0
    # tokens of the longest training sentence, its end included
    max_trained_length: Annotated[int, Range(0, 1 << 30)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_token_ids("bos_id", "eos_id")
        if self.bidirectional and self.hidden_size % 2:
            raise ConfigError(
                f"hidden_size {self.hidden_size} cannot be split between two directions",
                fix="use an even hidden_size, or set bidirectional to false",
            )
