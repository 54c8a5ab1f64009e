"""The configuration of ELMo.  Peters et al. 2018."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import MaxPositions, ModelConfig, Probability
from cloze.models.configs.ngram import SYMBOLS

_MAX_WIDTH = 50  # the characters of a word, its begin and end symbols included
Size = Annotated[int, Range(1, 1 << 15)]

_WIDTHS = (1, 2, 3, 4, 5, 6, 7)
_COUNTS = (32, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, kw_only=True)
class ElmoConfig(ModelConfig):
    """The hyperparameters of an ELMo; the defaults are those of the published model."""

    family: ClassVar[str] = "elmo"
    MIN_VOCAB_SIZE: ClassVar[int] = len(SYMBOLS)
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "original": {},
        "small": {
            "filter_widths": (1, 2, 3, 4, 5),
            "filter_counts": (32, 32, 64, 128, 256),
            "projection_size": 256,
            "cell_size": 1024,
        },
        "tiny": {
            "filter_widths": (1, 2, 3, 4),
            "filter_counts": (16, 16, 32, 64),
            "num_highway_layers": 1,
            "projection_size": 64,
            "cell_size": 256,
        },
    }

    char_embedding_size: Annotated[Size, Help("Width of the character embeddings")] = 16
    filter_widths: Annotated[
        tuple[Annotated[int, Range(1, _MAX_WIDTH)], ...],
        Help("Widths of the character filters, in characters"),
    ] = _WIDTHS
    filter_counts: Annotated[tuple[Size, ...], Help("Number of filters of each width")] = _COUNTS
    activation: Annotated[
        Literal["relu", "tanh"], Help("Activation of the pooled filters: relu or tanh")
    ] = "relu"
    num_highway_layers: Annotated[
        int, Range(0, 16), Help("Number of highway layers above the filters")
    ] = 2
    projection_size: Annotated[
        Size, Help("Width of the word vectors and of the LSTMs' outputs, per direction")
    ] = 512
    cell_size: Annotated[Size, Help("Number of units of an LSTM layer, per direction")] = 4096
    num_layers: Annotated[int, Range(1, 16), Help("Number of LSTM layers of each direction")] = 2
    cell_clip: Annotated[
        float,
        Range(0, 1000),
        Help("Bound of the LSTMs' cell states (published models: 3); 0: none"),
    ] = 0.0
    projection_clip: Annotated[
        float, Range(0, 1000), Help("Bound of the LSTMs' outputs (published models: 3); 0: none")
    ] = 0.0
    dropout: Annotated[Probability, Help("Dropout probability around the LSTM layers")] = 0.1
    output: Annotated[
        Literal["softmax", "cnn", "none"],
        Help("Output layer: softmax (a vector per word), cnn (vectors from characters) or none"),
    ] = "softmax"
    correction_size: Annotated[
        Size, Help("Output cnn: width of the correction that each word has of its own")
    ] = 128
    num_candidates: Annotated[
        int,
        Range(0, 1 << 22),
        Help("Words that training normalizes over (sampled softmax); 0: the whole vocabulary"),
    ] = 8192
    carry_state: Annotated[
        bool,
        Help("Carry the LSTMs' states from one text to the next, as the published code does"),
    ] = False
    max_positions: MaxPositions = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.filter_widths) != len(self.filter_counts) or not self.filter_widths:
            raise ConfigError(
                f"filter_widths has {len(self.filter_widths)} numbers and filter_counts "
                f"{len(self.filter_counts)}",
                fix="give one count for each width",
            )
        if self.projection_size >= self.cell_size:
            raise ConfigError(
                f"projection_size {self.projection_size} is not smaller than cell_size "
                f"{self.cell_size}",
                fix="use a smaller projection_size",
            )

    @property
    def hidden_size(self) -> int:
        """Width of the vectors of a layer: those of both directions."""
        return 2 * self.projection_size
