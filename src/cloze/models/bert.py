"""BERT: a bidirectional encoder pre-trained with masked language modelling.  Devlin et al. 2018.

b sequences, t tokens, m positions read by a head, d width.
"""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from cloze.config import one_of
from cloze.models.configs.bert import BertConfig
from cloze.models.encoder_parts import build_mlm_head, build_post_norm_block
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LinearHead, Pooler, TaskHead
from cloze.nn.layers import ACTIVATIONS
from cloze.nn.layout import AttentionLayout, Packed, Varlen


class Bert(Encoder):
    """Token types and learned positions, post-norm blocks, a tanh pooler."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ("mlm", "nsp", "sequence", "token", "span", "choice")

    def __init__(
        self, config: BertConfig, task_heads: Iterable[str] = (), *, pooler: bool | None = None
    ) -> None:
        """A BERT with these heads.

        `pooler=None` adds the pooler if a head reads it or if there are no heads, as in the
        published base models.
        """
        heads = {
            one_of("head", name, self.TASK_HEADS): _build_head(name, config) for name in task_heads
        }
        if pooler is None:
            pooler = not heads or any(head.uses_pooler for head in heads.values())
        super().__init__(
            Embeddings(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                max_positions=config.max_positions,
                type_vocab_size=config.type_vocab_size,
                dropout=config.dropout,
                norm_eps=config.norm_eps,
            ),
            (build_post_norm_block(config) for _ in range(config.num_layers)),
            max_positions=config.max_positions,
            pooler=Pooler(config.hidden_size, ACTIVATIONS["tanh"]) if pooler else None,
            task_heads=heads,
        )
        self.config = config
        self.is_causal = config.is_causal

    def head_inputs(
        self, head: str, hidden: Tensor, indices: Tensor, attention_mask: AttentionLayout
    ) -> Tensor:
        """The vectors that a head reads, m d.

        If the model is causal, pooled heads read the last token of each sequence, which has
        attended to all of it, and not [CLS], which attends to itself only.
        """
        if self.is_causal and self.uses_pooler(head):
            indices = last_token_indices(hidden, attention_mask)
        return super().head_inputs(head, hidden, indices, attention_mask)


def last_token_indices(hidden: Tensor, attention_mask: AttentionLayout) -> Tensor:
    """The index of the last token of each sequence, counted through all rows: b."""
    if isinstance(attention_mask, Packed):
        lengths = torch.tensor(attention_mask.lengths, device=attention_mask.device)
        return attention_mask.starts + lengths - 1
    assert not isinstance(attention_mask, Varlen), "heads do not support Varlen rows"
    rows, length = hidden.shape[:2]
    starts = torch.arange(0, rows * length, length, device=hidden.device)
    if attention_mask is None:
        return starts + length - 1
    position = torch.arange(length, device=hidden.device)
    return starts + (position * attention_mask).amax(1)  # attention_mask: b t


def _build_head(name: str, config: BertConfig) -> TaskHead:
    if name == "mlm":
        return build_mlm_head(config)
    dropout = config.dropout if config.classifier_dropout is None else config.classifier_dropout
    outputs, dropout, uses_pooler = {
        "nsp": (2, 0.0, True),
        "sequence": (len(config.labels), dropout, True),
        "token": (len(config.labels), dropout, False),
        "span": (2, 0.0, False),  # start and end
        "choice": (1, dropout, True),
    }[name]
    return LinearHead(config.hidden_size, outputs, dropout=dropout, uses_pooler=uses_pooler)
