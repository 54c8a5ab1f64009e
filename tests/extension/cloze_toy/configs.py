"""The configurations, without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range
from cloze.models.configs.base import ModelConfig
from cloze.models.configs.encoder import EncoderConfig


@dataclass(frozen=True, kw_only=True)
class ToyEncoderConfig(EncoderConfig):
    """An encoder whose attention and feed-forward network read the same input."""

    family: ClassVar[str] = "toy-encoder"
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"num_layers": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64}
    }

    residual_scale: Annotated[float, Range(0, 10), Help("Factor of every residual branch")] = 1.0


@dataclass(frozen=True, kw_only=True)
class ToyLanguageModelConfig(ModelConfig):
    """A language model whose state is a decaying mean of the embeddings."""

    family: ClassVar[str] = "toy-lm"
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "bos_id")

    hidden_size: Annotated[int, Range(1, 4096), Help("Width of the state")] = 32
    bos_id: int = 0
