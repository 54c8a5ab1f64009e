"""The configurations of GPT, GPT-2 and GPT-3.  Radford et al. 2018, 2019; Brown et al. 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range
from cloze.models.configs.base import Activation, Probability
from cloze.models.configs.encoder import EncoderConfig


def _make_size(num_layers: int, hidden_size: int, num_heads: int) -> dict[str, int]:
    return {
        "num_layers": num_layers,
        "hidden_size": hidden_size,
        "num_heads": num_heads,
        "intermediate_size": 4 * hidden_size,
    }


SMALL_SIZES = {
    "tiny": _make_size(2, 128, 2),
    "mini": _make_size(4, 256, 4),
    "small": _make_size(4, 512, 8),
    "medium": _make_size(8, 512, 8),
    "base": _make_size(12, 768, 12),
}


@dataclass(frozen=True, kw_only=True)
class GPTConfig(EncoderConfig):
    """The hyperparameters of a GPT; the defaults are those of the published model."""

    family: ClassVar[str] = "openai-gpt"
    is_causal: ClassVar[bool] = True
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = SMALL_SIZES

    activation: Annotated[Activation, Help("Activation of the feed-forward networks")] = "gelu_new"
    embedding_dropout: Annotated[Probability, Help("Dropout probability of the embeddings")] = 0.1
    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-5
    pad_id: int | None = None
    classifier_dropout: Annotated[
        Probability, Help("Dropout probability before the token and choice heads")
    ] = 0.1


@dataclass(frozen=True, kw_only=True)
class GPT2Config(GPTConfig):
    """The hyperparameters of a GPT-2; the defaults are those of the smallest published model."""

    family: ClassVar[str] = "gpt2"
    # the published sizes have 124 M, 355 M, 774 M and 1.5 B parameters
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **SMALL_SIZES,
        "gpt2": _make_size(12, 768, 12),
        "gpt2-medium": _make_size(24, 1024, 16),
        "gpt2-large": _make_size(36, 1280, 20),
        "gpt2-xl": _make_size(48, 1600, 25),
    }

    max_positions: Annotated[int, Range(1, 1 << 24), Help("Maximum number of positions")] = 1024


@dataclass(frozen=True, kw_only=True)
class GPT3Config(GPT2Config):
    """The hyperparameters of a GPT-3: a GPT-2 with locally banded attention in some layers.

    Brown et al. 2020, §2.1: "alternating dense and locally banded sparse attention patterns in the
    layers of the transformer, similar to the Sparse Transformer". The paper does not give the width
    of the bands.
    """

    family: ClassVar[str] = "gpt3"
    # the sizes of table 2.1; two of its rows are rounded to a multiple of the head size
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **SMALL_SIZES,
        "gpt3-125m": _make_size(12, 768, 12),
        "gpt3-350m": _make_size(24, 1024, 16),
        "gpt3-760m": _make_size(24, 1536, 16),
        "gpt3-1.3b": _make_size(24, 2048, 16),
        "gpt3-2.7b": _make_size(32, 2560, 32),
        "gpt3-6.7b": _make_size(32, 4096, 32),
        "gpt3-13b": _make_size(40, 5120, 40),
        "gpt3-175b": _make_size(96, 12288, 96),
    }

    max_positions: Annotated[int, Range(1, 1 << 24), Help("Maximum number of positions")] = 2048
    window_size: Annotated[
        int,
        Range(1, 1 << 20),
        Help("Positions that a banded layer attends to: a token and those before it"),
    ] = 256
    global_attention_every: Annotated[
        int,
        Range(1, 1 << 16),
        Help("Every n-th layer attends to all tokens before, from the first on; others are banded"),
    ] = 2

    def is_local(self, layer: int) -> bool:
        """Whether a layer attends to a band only."""
        return layer % self.global_attention_every != 0
