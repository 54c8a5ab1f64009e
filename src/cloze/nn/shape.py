"""Parts of an encoder of BERT's kind, built from its configuration."""

from collections.abc import Iterator
from typing import Protocol

from cloze.nn.attention import Attention
from cloze.nn.block import FeedForward, PostNormBlock
from cloze.nn.embeddings import Embeddings
from cloze.nn.heads import MaskedLM
from cloze.nn.layers import ACTIVATIONS


class EncoderShape(Protocol):
    """What is read of a configuration here."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def activation(self) -> str: ...
    @property
    def dropout(self) -> float: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def tie_embeddings(self) -> bool: ...


def embeddings_of(config: EncoderShape, segments: int = 0) -> Embeddings:
    return Embeddings(
        vocab_size=config.vocab_size,
        width=config.hidden_size,
        positions=config.max_positions,
        segments=segments,
        dropout=config.dropout,
        norm_eps=config.norm_eps,
    )


def post_norm_blocks(config: EncoderShape) -> Iterator[PostNormBlock]:
    for _ in range(config.num_layers):
        yield PostNormBlock(
            Attention(config.hidden_size, config.num_heads, config.attention_dropout),
            FeedForward(
                config.hidden_size, config.intermediate_size, ACTIVATIONS[config.activation]
            ),
            dropout=config.dropout,
            norm_eps=config.norm_eps,
        )


def masked_lm(config: EncoderShape) -> MaskedLM:
    return MaskedLM(
        config.hidden_size,
        config.vocab_size,
        ACTIVATIONS[config.activation],
        norm_eps=config.norm_eps,
        tied=config.tie_embeddings,
    )
