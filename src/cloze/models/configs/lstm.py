"""The configuration of the recurrent language model."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from cloze.config import Help, Range
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
        int,
        Range(0, 1 << 15),
        Help(
            "Width of the word embeddings and, if they are tied, of the last layer; 0 means as "
            "hidden_size"
        ),
    ] = 0
    num_layers: Annotated[int, Range(1, 64), Help("Number of layers")] = 2
    # Press and Wolf 2017
    tie_embeddings: Annotated[bool, Help("The output shares the embedding matrix")] = True
    dropout: Annotated[
        Probability,
        Help("Dropout probability between layers, and before the first and after the last"),
    ] = 0.5
    variational_dropout: Annotated[
        bool, Help("Use one dropout mask for all steps of a sequence, instead of one each")
    ] = True
    # AWD-LSTM (Merity et al. 2018)
    embedding_dropout: Annotated[
        Probability, Help("Probability that a word is dropped wherever it occurs in a batch")
    ] = 0.0
    input_dropout: Annotated[
        Probability | None, Help("Dropout probability of the embeddings (default: dropout)")
    ] = None
    output_dropout: Annotated[
        Probability | None, Help("Dropout probability of the last layer (default: dropout)")
    ] = None
    weight_dropout: Annotated[
        Probability, Help("Dropout probability of the hidden-to-hidden weights (DropConnect)")
    ] = 0.0
    bos_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding_size == 0:
            object.__setattr__(self, "embedding_size", self.hidden_size)
        self._check_token_ids("bos_id")

    @property
    def output_size(self) -> int:
        """Width of the last layer, which is that of the embeddings if the output shares them."""
        return self.embedding_size if self.tie_embeddings else self.hidden_size
