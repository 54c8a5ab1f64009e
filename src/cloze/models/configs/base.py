"""What the configurations of all families have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from cloze.config import Choices, Config, Help, Range, in_range, one_of
from cloze.errors import ConfigError

# The keys of `cloze.nn.layers.ACTIVATIONS`, listed here to avoid importing torch.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "relu", "silu", "tanh")

# Far above any published model: a folder that exceeds these limits is damaged or malicious, and is
# rejected before memory is allocated.
MAX_LAYERS = 512
HiddenSize = Annotated[int, Range(1, 1 << 15)]
NumLayers = Annotated[int, Range(1, MAX_LAYERS), Help("Number of layers")]
NumHeads = Annotated[int, Range(1, 1 << 10), Help("Number of attention heads")]
IntermediateSize = Annotated[
    int, Range(1, 1 << 18), Help("Inner width of the feed-forward networks")
]
MaxPositions = Annotated[int, Range(1, 1 << 20), Help("Longest input in tokens")]
Activation = Annotated[str, Choices(*ACTIVATIONS)]
Probability = Annotated[float, Range(0, 1)]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The hyperparameters of a model.

    The fields named in `FROM_DATA` depend on the vocabulary or on the labels. They have defaults,
    so that a recipe can hold a configuration before the data are known, and are set with
    `dataclasses.replace` or `cloze.models.build.build`.
    """

    family: ClassVar[str]
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size",)
    MIN_VOCAB_SIZE: ClassVar[int] = 1
    MAX_VOCAB_SIZE: ClassVar[int] = 1 << 22
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    vocab_size: int = 0  # 0: not known yet

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocab_size != 0:
            in_range("vocab_size", self.vocab_size, self.MIN_VOCAB_SIZE, self.MAX_VOCAB_SIZE)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:  # noqa: ANN401
        """One of the sizes in `PRESETS`, with changes."""
        settings = cls.PRESETS[one_of("preset", name, cls.PRESETS)]
        return cls(**{**settings, **changes})

    @property
    def reads_text(self) -> bool:
        """Whether a folder has a tokenizer, unless its family has none at all."""
        return True

    def check_complete(self) -> None:
        """Raise unless the vocabulary is known, as building a module requires."""
        if self.vocab_size == 0:
            raise ConfigError(
                "vocab_size is 0: the configuration has no vocabulary yet",
                fix="set vocab_size to the number of tokens in the tokenizer's vocabulary",
            )

    def _check_token_ids(self, *names: str) -> None:
        """Raise unless the fields hold ids of the vocabulary, where it is known."""
        highest = (self.vocab_size or self.MAX_VOCAB_SIZE) - 1
        for name in names:
            in_range(name, getattr(self, name), 0, highest)


def check_heads(hidden_size: int, num_heads: int) -> None:
    """Raise unless attention heads can divide the hidden size evenly."""
    if hidden_size % num_heads:
        raise ConfigError(
            f"hidden_size {hidden_size} is not divisible by num_heads {num_heads}",
            fix=f"use a multiple of {num_heads}",
        )
