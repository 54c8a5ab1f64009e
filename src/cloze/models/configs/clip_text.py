"""The configuration of the text encoder of CLIP.  Radford et al. 2021, §2.4."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from cloze.config import Help, Range
from cloze.models.configs.base import Activation, MaxPositions, Probability
from cloze.models.configs.gpt import SMALL_SIZES, GPT2Config


@dataclass(frozen=True, kw_only=True)
class ClipTextConfig(GPT2Config):
    """The hyperparameters of CLIP's text encoder; the defaults are those of the published models.

    It is a GPT-2 without dropout. The vector of a text is that of its end-of-text token, the only
    one that has attended to all others.
    """

    family: ClassVar[str] = "clip-text"
    FROM_DATA: ClassVar[tuple[str, ...]] = (*GPT2Config.FROM_DATA, "end_of_text_id")
    LEGACY_END_ID: ClassVar[int] = 2  # in early configurations: the token with the highest id
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = SMALL_SIZES

    hidden_size: Annotated[int, Range(1, 1 << 15), Help("Width of the hidden states")] = 512
    num_heads: Annotated[int, Range(1, 1 << 10), Help("Number of attention heads")] = 8
    intermediate_size: Annotated[
        int, Range(1, 1 << 18), Help("Inner width of the feed-forward networks")
    ] = 2048
    max_positions: MaxPositions = 77
    activation: Annotated[Activation, Help("Activation of the feed-forward networks")] = (
        "quick_gelu"
    )
    dropout: Annotated[Probability, Help("Dropout probability of the hidden states")] = 0.0
    embedding_dropout: Annotated[Probability, Help("Dropout probability of the embeddings")] = 0.0
    attention_dropout: Annotated[
        Probability, Help("Dropout probability of the attention weights")
    ] = 0.0
    end_of_text_id: int | None = None  # the end-of-text token; None: the last token of a text

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.end_of_text_id is not None:
            self._check_token_ids("end_of_text_id")
