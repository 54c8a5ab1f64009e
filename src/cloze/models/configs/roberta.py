"""The configurations of RoBERTa and XLM-R.  Liu et al. 2019, Conneau et al. 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import Probability
from cloze.models.configs.encoder import EncoderConfig

PRESETS = {
    "base": {"num_layers": 12, "hidden_size": 768, "num_heads": 12, "intermediate_size": 3072},
    "large": {"num_layers": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096},
}


@dataclass(frozen=True, kw_only=True)
class RobertaConfig(EncoderConfig):
    """The hyperparameters of a RoBERTa; the defaults are those of RoBERTa-base.

    `max_positions` is the maximum length of a sequence. The position matrix has `pad_id + 1` more
    rows, because positions are counted from `pad_id + 1`.
    """

    family: ClassVar[str] = "roberta"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = PRESETS

    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-5
    pad_id: int | None = 1
    classifier_dropout: Annotated[
        Probability | None, Help("Dropout probability before the task heads (default: dropout)")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad_id is None:
            raise ConfigError(
                "pad_id is missing: positions are counted from it",
                fix="use a tokenizer with a padding token",
            )

    @property
    def position_offset(self) -> int:
        """The row of the position matrix for the first token."""
        assert self.pad_id is not None
        return self.pad_id + 1


@dataclass(frozen=True, kw_only=True)
class XLMRobertaConfig(RobertaConfig):
    """The hyperparameters of an XLM-R: a RoBERTa with a vocabulary of a hundred languages."""

    family: ClassVar[str] = "xlm-roberta"
