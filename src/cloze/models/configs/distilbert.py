"""The configuration of DistilBERT.  Sanh et al. 2019."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from cloze.config import Help
from cloze.errors import ConfigError
from cloze.models.configs.base import NumLayers, Probability
from cloze.models.configs.encoder import EncoderConfig

NORM_EPS = 1e-12


@dataclass(frozen=True, kw_only=True)
class DistilBertConfig(EncoderConfig):
    """The hyperparameters of a DistilBERT; the defaults are those of DistilBERT-base."""

    family: ClassVar[str] = "distilbert"

    num_layers: NumLayers = 6
    classifier_dropout: Annotated[
        Probability, Help("Dropout probability before the sequence and choice heads")
    ] = 0.2
    qa_dropout: Annotated[Probability, Help("Dropout probability before the span head")] = 0.1
    sinusoidal_positions: Annotated[
        bool, Help("Position embeddings start as sinusoids, and are trained like other weights")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm_eps != NORM_EPS:
            raise ConfigError(
                f"norm_eps is {self.norm_eps}, but DistilBERT's layer norms use {NORM_EPS}",
                fix="leave norm_eps out: the published layout cannot store it",
            )
