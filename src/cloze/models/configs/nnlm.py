"""The configuration of the neural language model of Bengio et al. 2003."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from cloze.config import Help, Range
from cloze.models.configs.base import HiddenSize, ModelConfig, Probability


@dataclass(frozen=True, kw_only=True)
class NNLMConfig(ModelConfig):
    """The hyperparameters of an NNLM."""

    family: ClassVar[str] = "nnlm"
    MIN_VOCAB_SIZE: ClassVar[int] = 2
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "bos_id")

    order: Annotated[
        int, Range(2, 1 << 10), Help("A word is predicted from the order-1 words before it")
    ] = 5
    embedding_size: Annotated[HiddenSize, Help("Width of the word embeddings")] = 100
    hidden_size: Annotated[int, Range(1, 1 << 16), Help("Width of the hidden layer")] = 500
    direct_connections: Annotated[
        bool, Help("Connect the embeddings directly to the output (the paper's W)")
    ] = False
    dropout: Annotated[Probability, Help("Dropout probability; the paper has none")] = 0.0
    bos_id: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_token_ids("bos_id")
