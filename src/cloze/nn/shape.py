"""The numbers every encoder of BERT's kind has, and the parts that follow from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from cloze.config import check_choices, in_range, number, one_of
from cloze.errors import ConfigError
from cloze.nn.activations import ACTIVATIONS
from cloze.nn.attention import Attention
from cloze.nn.blocks import FeedForward, PostNormBlock
from cloze.nn.embeddings import Embeddings
from cloze.nn.heads import MaskedLM

# Far above any published encoder; a folder that asks for more is broken or hostile, and is
# refused before anything is allocated.
LIMITS = {
    "vocab_size": 1 << 22,
    "hidden_size": 1 << 15,
    "num_layers": 512,
    "num_heads": 1 << 10,
    "intermediate_size": 1 << 18,
    "max_positions": 1 << 20,
}
MOST_LABELS = 1 << 16
Problem = Literal["number", "classes", "many"]  # many: several labels at once
UNNAMED = ("LABEL_0", "LABEL_1")  # what a published configuration says when it says nothing


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder; the defaults are those of BERT BASE."""

    family: ClassVar[str]

    vocab_size: int
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072  # the inner width of the feed-forward nets
    max_positions: int = 512
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_eps: float = 1e-12
    init_std: float = 0.02  # of the initial weights
    pad_id: int | None = 0
    tie_embeddings: bool = True  # the masked-LM head reads the embedding table
    labels: tuple[str, ...] = UNNAMED
    problem_type: Problem | None = None  # None: unsaid

    def __post_init__(self) -> None:
        check_choices(self)
        for name, high in LIMITS.items():
            in_range(name, getattr(self, name), 1, high)
        if self.pad_id is not None:
            in_range("pad_id", self.pad_id, 0, self.vocab_size - 1)
        one_of("activation", str(self.activation), ACTIVATIONS)
        if self.hidden_size % self.num_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} is not divisible by num_heads {self.num_heads}",
                fix=f"use a multiple of {self.num_heads}",
            )
        in_range("the number of labels", len(self.labels), 1, MOST_LABELS)
        number("dropout", self.dropout, 0.0, 1.0)
        number("attention_dropout", self.attention_dropout, 0.0, 1.0)
        number("norm_eps", self.norm_eps, 0.0, 1.0)
        number("init_std", self.init_std, 0.0, 10.0)


def embeddings_of(config: EncoderConfig, segments: int = 0) -> Embeddings:
    return Embeddings(
        vocab_size=config.vocab_size,
        width=config.hidden_size,
        positions=config.max_positions,
        segments=segments,
        dropout=config.dropout,
        norm_eps=config.norm_eps,
    )


def post_norm_blocks(config: EncoderConfig) -> Iterator[PostNormBlock]:
    for _ in range(config.num_layers):
        yield PostNormBlock(
            Attention(config.hidden_size, config.num_heads, config.attention_dropout),
            FeedForward(
                config.hidden_size, config.intermediate_size, ACTIVATIONS[config.activation]
            ),
            dropout=config.dropout,
            norm_eps=config.norm_eps,
        )


def masked_lm(config: EncoderConfig) -> MaskedLM:
    return MaskedLM(
        config.hidden_size,
        config.vocab_size,
        ACTIVATIONS[config.activation],
        norm_eps=config.norm_eps,
        tied=config.tie_embeddings,
    )
