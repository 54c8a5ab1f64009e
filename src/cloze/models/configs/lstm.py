"""The configuration of the recurrent language model."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import HiddenSize, ModelConfig, Probability


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(ModelConfig):
    """The hyperparameters of a recurrent language model: LSTM, GRU or simple RNN."""

    family: ClassVar[str] = "lstm"
    MIN_VOCAB_SIZE: ClassVar[int] = 2
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "bos_id")

    cell: Annotated[Literal["rnn", "lstm", "gru"], Help("Kind of recurrent cell")] = "lstm"
    hidden_size: Annotated[HiddenSize, Help("Width of the hidden states")] = 650
    embedding_size: Annotated[
        int, Range(0, 1 << 15), Help("Width of the word embeddings; 0 means as hidden_size")
    ] = 0
    num_layers: Annotated[int, Range(1, 64), Help("Number of layers")] = 2
    # Press and Wolf 2017
    tie_embeddings: Annotated[bool, Help("The output shares the embedding matrix")] = True
    dropout: Annotated[Probability, Help("Dropout probability between layers")] = 0.5
    variational_dropout: Annotated[
        bool, Help("Use one dropout mask for all steps of a sequence, instead of one each")
    ] = True
    bos_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding_size == 0:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        self._check_token_ids("bos_id")
        if self.tie_embeddings and self.hidden_size != self.embedding_size:
            raise ConfigError(
                f"embedding_size is {self.embedding_size} and hidden_size {self.hidden_size}, "
                "which must be equal when the embeddings are tied",
                fix="leave embedding_size out, make it equal, or set tie_embeddings to false",
            )
