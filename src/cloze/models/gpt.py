"""GPT, GPT-2 and GPT-3: causal language models, the Transformer's decoder without an encoder.

Radford et al. 2018 and 2019, Brown et al. 2020. Differences from BERT: no token attends to a later
one, there are no token types, and the head predicts the next token at every position. GPT's blocks
are BERT's (post-norm); GPT-2 normalizes before each sub-layer and once more after the last block;
in GPT-3 every second layer attends to a band of the last tokens only.
"""

from collections.abc import Iterable
from typing import ClassVar

import torch

from cloze.config import one_of
from cloze.models.configs.gpt import GPT3Config, GPTConfig
from cloze.models.model_parts import build_post_norm_block, build_pre_norm_block
from cloze.nn.attention import Attention
from cloze.nn.block import Block
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LinearHead, LMHead, TaskHead
from cloze.nn.layers import LayerNorm


class GPT(Encoder):
    """Token and position embeddings, post-norm blocks with a causal mask."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ("lm", "sequence", "token", "span", "choice")
    is_causal = True

    def __init__(self, config: GPTConfig, task_heads: Iterable[str] = ()) -> None:
        heads = {
            one_of("head", name, self.TASK_HEADS): _build_head(name, config) for name in task_heads
        }
        super().__init__(
            Embeddings(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                max_positions=config.max_positions,
                type_vocab_size=0,
                dropout=config.embedding_dropout,
                norm_eps=None,
            ),
            (self.build_block(config, layer) for layer in range(config.num_layers)),
            max_positions=config.max_positions,
            norm=self.build_final_norm(config),
            task_heads=heads,
        )
        self.config = config

    @staticmethod
    def build_block(config: GPTConfig, layer: int) -> Block:  # noqa: ARG004 (for GPT-3)
        """One block of the decoder."""
        return build_post_norm_block(config)

    @staticmethod
    def build_final_norm(config: GPTConfig) -> LayerNorm | None:  # noqa: ARG004 (for GPT-2)
        """The norm after the last block: a post-norm block ends with one."""
        return None


class GPT2(GPT):
    """GPT with pre-norm blocks and a final norm."""

    @staticmethod
    def build_block(config: GPTConfig, layer: int) -> Block:
        window_size = None
        if isinstance(config, GPT3Config) and config.is_local(layer):
            # of a window, half is on each side, and a causal mask leaves the left one
            window_size = 2 * (config.window_size - 1)
        attention = Attention(
            config.hidden_size,
            config.num_heads,
            config.attention_dropout,
            window_size=window_size,
        )
        return build_pre_norm_block(config, attention)

    @staticmethod
    def build_final_norm(config: GPTConfig) -> LayerNorm:
        return LayerNorm(config.hidden_size, eps=config.norm_eps)

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Like other encoders, but the last matrices of sub-layers are scaled by 1/√(2·layers)."""
        super().init_weights(init_std, rng)
        self.scale_residual_weights()


def _build_head(name: str, config: GPTConfig) -> TaskHead:
    size, labels = config.hidden_size, len(config.labels)
    if name == "lm":
        return LMHead(size, config.vocab_size, tied=config.tie_embeddings, bias=False)
    if name == "sequence":  # reads the last token, which has attended to the whole text
        return LinearHead(size, labels, dropout=0.0, uses_pooler=True, bias=False)
    dropout = config.classifier_dropout
    if name == "token":
        return LinearHead(size, labels, dropout=dropout, uses_pooler=False)
    if name == "choice":  # reads the last token, like `sequence`
        return LinearHead(size, 1, dropout=dropout, uses_pooler=True)
    return LinearHead(size, 2, dropout=0.0, uses_pooler=False)  # span: start and end
