"""ModernBERT: BERT's encoder with what a few years taught.  Warner et al. 2024.

Pre-norm blocks, rotary positions, gated feed-forward nets, no biases, and most layers looking at
their neighbourhood only.
"""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.nn.attention import RotaryAttention
from cloze.nn.block import GatedFeedForward, PreNormBlock
from cloze.nn.embeddings import WordEmbeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import Linear, Transform, WordScores
from cloze.nn.layers import ACTIVATIONS, LayerNorm
from cloze.nn.layout import AttentionLayout, Packed, Varlen


class ModernBert(Encoder):
    """No segments and no table of positions; one transform is read by every head."""

    HEADS: ClassVar[tuple[str, ...]] = ("mlm", "sequence", "token", "span", "choice")

    def __init__(self, config: ModernBertConfig, heads: Iterable[str] = ()) -> None:
        built = {one_of("head", name, self.HEADS): _head(name, config) for name in heads}
        super().__init__(
            WordEmbeddings(
                vocab_size=config.vocab_size, norm=_norm(config), dropout=config.dropout
            ),
            (_block(layer, config) for layer in range(config.num_layers)),
            positions=config.max_positions,
            norm=_norm(config),
            heads=built,
        )
        self.transform = _transform(config) if built else None
        self.config = config

    def logits(self, head: str, vectors: Tensor) -> Tensor:
        """Scores of one head, as in every encoder."""
        one_of("head", head, self.heads)
        assert self.transform is not None
        return super().logits(head, self.transform(vectors))

    def word_factors(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """As in every encoder, after the transform."""
        assert self.transform is not None
        return super().word_factors(self.transform(vectors))

    def gathered(
        self, head: str, hidden: Tensor, places: Tensor, allowed: AttentionLayout
    ) -> Tensor:
        """The vectors that a head reads; where it pools by mean, that of each sequence."""
        if self.config.classifier_pooling == "mean" and getattr(self.heads[head], "pooled", False):
            return means(hidden, allowed)
        return super().gathered(head, hidden, places, allowed)

    @torch.no_grad()
    def initialise(self, deviation: float, rng: torch.Generator) -> None:
        """As every encoder, but what is added to the residual is smaller, by 1/√(2·layers).

        Radford et al. 2019, §2.3: so the sum over all layers starts no larger than its parts. The
        published script also cuts the normal at two deviations and draws classifiers from
        N(0, 1/d); we do neither.
        """
        super().initialise(deviation, rng)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                weight.mul_((2 * self.config.num_layers) ** -0.5)


def means(hidden: Tensor, allowed: AttentionLayout) -> Tensor:
    """The mean vector of each sequence's real tokens, b d."""
    if isinstance(allowed, Packed):
        rows = hidden.split([count * length for _, count, length in allowed.runs])
        return torch.cat(
            [
                row.unflatten(0, (count, length)).mean(1)
                for row, (_, count, length) in zip(rows, allowed.runs, strict=True)
            ]
        )
    if allowed is None:
        return hidden.mean(1)
    assert not isinstance(allowed, Varlen), "no head is read while rows are of unknown bounds"
    real = allowed.to(hidden.dtype)  # b t
    return (hidden * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)


def _norm(config: ModernBertConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)


def _block(layer: int, config: ModernBertConfig) -> PreNormBlock:
    local = config.is_local(layer)
    return PreNormBlock(
        RotaryAttention(
            config.hidden_size,
            config.num_heads,
            config.attention_dropout,
            bias=config.attention_bias,
            rope_theta=config.local_rope_theta if local else config.rope_theta,
            window_size=config.window_size if local else None,
        ),
        GatedFeedForward(
            config.hidden_size,
            config.intermediate_size,
            ACTIVATIONS[config.activation],
            bias=config.ffn_bias,
            dropout=config.ffn_dropout,
        ),
        # the embeddings have been through a norm just before
        attention_norm=_norm(config) if layer else nn.Identity(),
        ffn_norm=_norm(config),
        dropout=config.attention_dropout,
        ffn_dropout=0.0,  # it is inside the feed-forward net
    )


def _transform(config: ModernBertConfig) -> Transform:
    dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)
    return Transform(dense, ACTIVATIONS[config.classifier_activation], _norm(config))


def _head(name: str, config: ModernBertConfig) -> nn.Module:
    if name == "mlm":
        return WordScores(
            config.hidden_size,
            config.vocab_size,
            tied=config.tie_embeddings,
            bias=config.lm_head_bias,
        )
    outputs, pooled = {
        "sequence": (len(config.labels), True),
        "token": (len(config.labels), False),
        "span": (2, False),  # start and end
        "choice": (1, True),
    }[name]
    return Linear(config.hidden_size, outputs, dropout=config.classifier_dropout, pooled=pooled)
