"""The configuration of a recurrent language model as an encoder of texts (ULMFiT)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from cloze.config import Help, Range, in_range
from cloze.models.configs.base import MaxPositions, Probability
from cloze.models.configs.encoder import DEFAULT_LABELS, MAX_LABELS, ProblemType
from cloze.models.configs.lstm import LSTMConfig


@dataclass(frozen=True, kw_only=True)
class ULMFiTConfig(LSTMConfig):
    """The hyperparameters of the layers of a recurrent language model, and of a classifier on them.

    The defaults of the classifier are those of Howard & Ruder 2018, §3.3 and §4.1.
    """

    family: ClassVar[str] = "ulmfit"
    TASK_HEADS: ClassVar[tuple[str, ...]] = ("sequence", "token")
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "bos_id", "labels", "problem_type")

    max_positions: MaxPositions = 1 << 14
    bptt_length: Annotated[
        int, Range(1, 1 << 20), Help("Number of tokens through which gradients flow back in time")
    ] = 70
    gradient_length: Annotated[
        int, Range(1, 1 << 20), Help("Number of tokens at the end of a text that have gradients")
    ] = 1400
    concat_pooling: Annotated[
        bool, Help("The classifier reads last state, maximum and mean instead of the last state")
    ] = True
    classifier_size: Annotated[
        int, Range(1, 1 << 15), Help("Width of the hidden layer of the classifier")
    ] = 50
    classifier_dropout: Annotated[
        Probability, Help("Dropout probability of the inputs of the classifier")
    ] = 0.4
    classifier_hidden_dropout: Annotated[
        Probability, Help("Dropout probability of the hidden layer of the classifier")
    ] = 0.1
    labels: tuple[str, ...] = DEFAULT_LABELS
    problem_type: ProblemType | None = None  # None: derived from the labels

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range("the number of labels", len(self.labels), 1, MAX_LABELS)
