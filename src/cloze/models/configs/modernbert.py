"""The configuration of ModernBERT.  Warner et al. 2024."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import (
    Activation,
    IntermediateSize,
    MaxPositions,
    NumLayers,
    Probability,
)
from cloze.models.configs.encoder import EncoderConfig

SHORT_TEXT_THETA = 10_000.0  # the rotary base of Su et al. 2021


def _make_size(
    num_layers: int, hidden_size: int, num_heads: int, intermediate_size: int
) -> dict[str, int]:
    return {
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "intermediate_size": intermediate_size,
    }


# In the small presets, which are for short texts, every layer attends globally.
_SHORT: dict[str, Any] = {"global_attention_every": 1, "rope_theta": SHORT_TEXT_THETA}


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(EncoderConfig):
    """The hyperparameters of a ModernBERT; the defaults are those of ModernBERT-base."""

    family: ClassVar[str] = "modernbert"
    # base and large of the paper, small ones like those of BERT, and `cloze`, our own model
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": _make_size(2, 128, 2, 352) | _SHORT,
        "mini": _make_size(4, 256, 4, 704) | _SHORT,
        "small": _make_size(4, 512, 8, 1376) | _SHORT,
        "medium": _make_size(8, 512, 8, 1376) | _SHORT,
        "cloze": _make_size(12, 320, 5, 864) | _SHORT,
        "base": _make_size(22, 768, 12, 1152),
        "large": _make_size(28, 1024, 16, 2624),
    }

    num_layers: NumLayers = 22
    intermediate_size: IntermediateSize = 1152
    max_positions: MaxPositions = 8192
    dropout: Annotated[Probability, Help("Dropout probability of the embeddings")] = 0.0
    attention_dropout: Annotated[
        Probability, Help("Dropout probability of the attention weights and outputs")
    ] = 0.0
    ffn_dropout: Annotated[
        Probability, Help("Dropout probability inside the feed-forward networks")
    ] = 0.0
    classifier_dropout: Annotated[
        Probability, Help("Dropout probability before the task heads")
    ] = 0.0
    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-5
    global_attention_every: Annotated[
        int,
        Range(1, 1 << 16),
        Help("Every n-th layer attends to the whole text, from the first on; the others locally"),
    ] = 3
    window_size: Annotated[
        int,
        Range(1, 1 << 20),
        Help("Positions that a local layer attends to, half of them on each side"),
    ] = 128
    rope_theta: Annotated[
        float, Range(1, 1e12), Help("Base of the rotary angles in global layers")
    ] = 160_000.0
    local_rope_theta: Annotated[
        float, Range(1, 1e12), Help("Base of the rotary angles in local layers")
    ] = SHORT_TEXT_THETA
    classifier_activation: Annotated[
        Activation, Help("Activation of the dense layer before the task heads")
    ] = "gelu"
    classifier_pooling: Annotated[
        Literal["cls", "mean"], Help("Input of the sequence and choice heads")
    ] = "cls"
    norm_bias: bool = False
    attention_bias: bool = False
    ffn_bias: bool = False
    classifier_bias: bool = False
    lm_head_bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size // self.num_heads % 2:
            raise ConfigError(
                f"the head size {self.hidden_size // self.num_heads} is odd, but rotary positions "
                "rotate pairs",
                fix="use a hidden_size whose quotient by num_heads is even",
            )

    @staticmethod
    def scale_intermediate_size(hidden_size: int) -> int:
        """8/3 of the hidden size, rounded up to a multiple of 32.

        A gated network has three matrices where a plain one has two, so this costs what four times
        the hidden size does there (Shazeer 2020, §3).
        """
        return -(-hidden_size * 8 // 3 // 32) * 32

    def is_local(self, layer: int) -> bool:
        """Whether a layer attends to a window only."""
        return layer % self.global_attention_every != 0
