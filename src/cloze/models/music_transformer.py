"""The Music Transformer: a GPT-2 whose only positions are distances between tokens.

Huang et al. 2018. Motifs and rhythms repeat at certain distances, wherever a composition has begun.
Deviations: the paper also adds sinusoids to the embeddings; norms come first in a sub-layer, as in
GPT-2.
"""

from collections.abc import Iterable
from typing import ClassVar

import torch

from cloze.config import one_of
from cloze.models.configs.music_transformer import MusicTransformerConfig
from cloze.models.model_parts import build_pre_norm_block
from cloze.nn.embeddings import WordEmbeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LMHead
from cloze.nn.layers import LayerNorm
from cloze.nn.relative_attention import RelativeAttention


class MusicTransformer(Encoder):
    """Token embeddings, pre-norm blocks with relative attention and a causal mask, a norm."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = MusicTransformerConfig.TASK_HEADS
    is_causal = True

    def __init__(self, config: MusicTransformerConfig, task_heads: Iterable[str] = ()) -> None:
        size = config.hidden_size
        super().__init__(
            WordEmbeddings(
                vocab_size=config.vocab_size,
                norm=LayerNorm(size, eps=config.norm_eps),
                dropout=config.embedding_dropout,
            ),
            (
                build_pre_norm_block(
                    config,
                    RelativeAttention(
                        size,
                        config.num_heads,
                        config.attention_dropout,
                        max_distance=config.max_distance,
                    ),
                )
                for _ in range(config.num_layers)
            ),
            max_positions=config.max_positions,
            norm=LayerNorm(size, eps=config.norm_eps),
            task_heads={
                one_of("head", name, self.TASK_HEADS): LMHead(
                    size, config.vocab_size, tied=config.tie_embeddings, bias=False
                )
                for name in task_heads
            },
        )
        self.config = config

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Like other encoders, but the last matrices of sub-layers are scaled by 1/√(2·layers)."""
        super().init_weights(init_std, rng)
        self.scale_residual_weights()
