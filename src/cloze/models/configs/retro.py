"""The configuration of a RETRO.  Borgeaud et al. 2021."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from cloze.config import Config, Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import MAX_LAYERS
from cloze.models.configs.gpt import SMALL_SIZES, GPT2Config

# The paper's models have 12, 24 and 32 blocks and retrieve from the 6th or the 9th on.
_FIRST_LAYERS = ((24, 9), (12, 6))
_EVERY = 3


@dataclass(frozen=True, kw_only=True)
class RetrievalSettings(Config):
    """What a model knows of retrieval: chunks, neighbors, and the layers that read them."""

    chunk_length: Annotated[
        int, Range(2, 1 << 12), Help("Number of tokens of a chunk, which retrieves neighbors")
    ] = 64
    num_neighbors: Annotated[
        int, Range(1, 64), Help("Number of neighbors that a chunk retrieves")
    ] = 2
    neighbor_layers: Annotated[
        int, Range(1, 64), Help("Number of layers of the neighbor encoder")
    ] = 2
    first_retrieval_layer: Annotated[
        int | None,
        Range(1, MAX_LAYERS),
        Help(
            "First layer with chunked cross-attention, counted from 1 (default: 6 of 12 or more, "
            "9 of 24 or more, else a third of the layers)"
        ),
    ] = None
    retrieval_every: Annotated[
        int,
        Range(1, MAX_LAYERS),
        Help("Every n-th layer from the first one on has chunked cross-attention"),
    ] = _EVERY


@dataclass(frozen=True, kw_only=True)
class RetroConfig(RetrievalSettings, GPT2Config):
    """The hyperparameters of a RETRO: those of its decoder, a GPT-2, and those of retrieval.

    In a recipe the settings of retrieval are in the table `retrieval`, because a trained GPT-2 that
    a run starts from (RETROfit) has the others already.
    """

    family: ClassVar[str] = "retro"
    FROM_DATA: ClassVar[tuple[str, ...]] = (
        *GPT2Config.FROM_DATA,
        *(one.name for one in fields(RetrievalSettings)),
    )
    TASK_HEADS: ClassVar[tuple[str, ...]] = ("lm",)
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = SMALL_SIZES

    def __post_init__(self) -> None:
        super().__post_init__()
        first = self.first_retrieval_layer
        if first is not None and first > self.num_layers:
            raise ConfigError(
                f"first_retrieval_layer is {first}, but there are {self.num_layers} layers",
                fix=f"use {self.num_layers} or less",
            )

    @property
    def retrieval_layers(self) -> tuple[int, ...]:
        """The layers with chunked cross-attention, counted from 1."""
        first = self.first_retrieval_layer
        if first is None:
            deep = (start for depth, start in _FIRST_LAYERS if self.num_layers >= depth)
            first = next(deep, -(-self.num_layers // 3))
        return tuple(range(first, self.num_layers + 1, self.retrieval_every))

    @property
    def neighbor_length(self) -> int:
        """Number of tokens of a neighbor: a chunk and its continuation."""
        return 2 * self.chunk_length
