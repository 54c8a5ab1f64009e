"""ModernBERT: an encoder with later improvements to BERT.  Warner et al. 2024.

Pre-norm blocks, rotary positions, gated feed-forward networks, no biases, and sliding-window
attention in most layers. b sequences, t tokens, m positions read by a head, d width.
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
from cloze.nn.heads import HeadTransform, LinearHead, LMHead, TaskHead
from cloze.nn.layers import ACTIVATIONS, LayerNorm
from cloze.nn.layout import AttentionLayout, Packed, Varlen


class ModernBert(Encoder):
    """No token types and no position embeddings; all heads share one transform."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ("mlm", "sequence", "token", "span", "choice")

    def __init__(self, config: ModernBertConfig, task_heads: Iterable[str] = ()) -> None:
        heads = {
            one_of("head", name, self.TASK_HEADS): _build_head(name, config) for name in task_heads
        }
        super().__init__(
            WordEmbeddings(
                vocab_size=config.vocab_size, norm=_build_norm(config), dropout=config.dropout
            ),
            (_build_block(layer, config) for layer in range(config.num_layers)),
            max_positions=config.max_positions,
            norm=_build_norm(config),
            task_heads=heads,
        )
        self.transform = _build_transform(config) if heads else None
        self.config = config

    def logits(self, head: str, vectors: Tensor) -> Tensor:
        """Logits of one head, after the transform."""
        one_of("head", head, self.task_heads)
        assert self.transform is not None
        return super().logits(head, self.transform(vectors))

    def lm_head_operands(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden vectors, weight and bias of the LM head, after the transform."""
        assert self.transform is not None
        return super().lm_head_operands(self.transform(vectors))

    def head_inputs(
        self, head: str, hidden: Tensor, indices: Tensor, attention_mask: AttentionLayout
    ) -> Tensor:
        """The vectors that a head reads, m d; with mean pooling that of each sequence."""
        if self.config.classifier_pooling == "mean" and self.uses_pooler(head):
            return mean_pool(hidden, attention_mask)
        return super().head_inputs(head, hidden, indices, attention_mask)

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Like other encoders, but the last matrices of sub-layers are scaled by 1/√(2·layers).

        The published script also truncates the normal distribution at two standard deviations and
        draws classifiers from N(0, 1/d); we do neither.
        """
        super().init_weights(init_std, rng)
        self.scale_residual_weights()


def mean_pool(hidden: Tensor, attention_mask: AttentionLayout) -> Tensor:
    """The mean vector of each sequence's real tokens: b d."""
    if isinstance(attention_mask, Packed):
        runs = attention_mask.runs
        rows = hidden.split([count * length for _, count, length in runs])
        return torch.cat(
            [
                row.unflatten(0, (count, length)).mean(1)
                for row, (_, count, length) in zip(rows, runs, strict=True)
            ]
        )
    if attention_mask is None:
        return hidden.mean(1)
    assert not isinstance(attention_mask, Varlen), "heads do not support Varlen rows"
    real = attention_mask.to(hidden.dtype)  # b t
    return (hidden * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)


def _build_norm(config: ModernBertConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)


def _build_block(layer: int, config: ModernBertConfig) -> PreNormBlock:
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
        # the embeddings already end with a norm
        attention_norm=_build_norm(config) if layer else nn.Identity(),
        ffn_norm=_build_norm(config),
        dropout=config.attention_dropout,
        ffn_dropout=0.0,  # the dropout is inside the feed-forward network
    )


def _build_transform(config: ModernBertConfig) -> HeadTransform:
    dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.classifier_bias)
    return HeadTransform(dense, ACTIVATIONS[config.classifier_activation], _build_norm(config))


def _build_head(name: str, config: ModernBertConfig) -> TaskHead:
    if name == "mlm":
        return LMHead(
            config.hidden_size,
            config.vocab_size,
            tied=config.tie_embeddings,
            bias=config.lm_head_bias,
        )
    outputs, uses_pooler = {
        "sequence": (len(config.labels), True),
        "token": (len(config.labels), False),
        "span": (2, False),  # start and end
        "choice": (1, True),
    }[name]
    return LinearHead(
        config.hidden_size, outputs, dropout=config.classifier_dropout, uses_pooler=uses_pooler
    )
