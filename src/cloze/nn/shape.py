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
    "width": 1 << 15,
    "layers": 512,
    "heads": 1 << 10,
    "hidden": 1 << 18,
    "positions": 1 << 20,
}
MOST_LABELS = 1 << 16
Problem = Literal["number", "classes", "many"]  # many: several labels at once
UNNAMED = ("LABEL_0", "LABEL_1")  # what a published configuration says when it says nothing


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder; the defaults are those of BERT BASE."""

    family: ClassVar[str]

    vocab_size: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072  # the inner width of the feed-forward nets
    positions: int = 512
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_eps: float = 1e-12
    deviation: float = 0.02  # of the initial weights
    pad_id: int | None = 0
    tied: bool = True  # the masked-LM head reads the embedding table
    labels: tuple[str, ...] = UNNAMED
    problem: Problem | None = None  # None: unsaid

    def __post_init__(self) -> None:
        check_choices(self)
        for name, high in LIMITS.items():
            in_range(name, getattr(self, name), 1, high)
        if self.pad_id is not None:
            in_range("pad_id", self.pad_id, 0, self.vocab_size - 1)
        one_of("activation", str(self.activation), ACTIVATIONS)
        if self.width % self.heads:
            raise ConfigError(
                f"width {self.width} does not split into {self.heads} heads",
                fix=f"use a multiple of {self.heads}",
            )
        in_range("the number of labels", len(self.labels), 1, MOST_LABELS)
        number("dropout", self.dropout, 0.0, 1.0)
        number("attention_dropout", self.attention_dropout, 0.0, 1.0)
        number("norm_eps", self.norm_eps, 0.0, 1.0)
        number("deviation", self.deviation, 0.0, 10.0)


def embeddings_of(config: EncoderConfig, segments: int = 0) -> Embeddings:
    return Embeddings(
        vocab_size=config.vocab_size,
        width=config.width,
        positions=config.positions,
        segments=segments,
        dropout=config.dropout,
        norm_eps=config.norm_eps,
    )


def post_norm_blocks(config: EncoderConfig) -> Iterator[PostNormBlock]:
    for _ in range(config.layers):
        yield PostNormBlock(
            Attention(config.width, config.heads, config.attention_dropout),
            FeedForward(config.width, config.hidden, ACTIVATIONS[config.activation]),
            dropout=config.dropout,
            norm_eps=config.norm_eps,
        )


def masked_lm(config: EncoderConfig) -> MaskedLM:
    return MaskedLM(
        config.width,
        config.vocab_size,
        ACTIVATIONS[config.activation],
        norm_eps=config.norm_eps,
        tied=config.tied,
    )
