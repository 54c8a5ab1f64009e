"""The configuration of a Music Transformer.  Huang et al. 2018."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range
from cloze.models.configs.base import MaxPositions, Probability
from cloze.models.configs.encoder import EncoderConfig


@dataclass(frozen=True, kw_only=True)
class MusicTransformerConfig(EncoderConfig):
    """The hyperparameters of a causal Transformer with relative positions."""

    family: ClassVar[str] = "music-transformer"
    is_causal: ClassVar[bool] = True
    position_encoding: ClassVar[str] = "relative"
    TASK_HEADS: ClassVar[tuple[str, ...]] = ("lm",)
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"num_layers": 2, "hidden_size": 128, "num_heads": 2, "intermediate_size": 512},
        "mini": {"num_layers": 4, "hidden_size": 256, "num_heads": 4, "intermediate_size": 1024},
        # the size of the paper for performances (appendix A.1)
        "base": {"num_layers": 6, "hidden_size": 512, "num_heads": 8, "intermediate_size": 1024},
    }

    max_positions: MaxPositions = 2048
    max_distance: Annotated[
        int,
        Range(1, 1 << 20),
        Help("Distance from which on earlier tokens share one relative position"),
    ] = 512
    embedding_dropout: Annotated[Probability, Help("Dropout probability of the embeddings")] = 0.1
    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-5
    pad_id: int | None = None
