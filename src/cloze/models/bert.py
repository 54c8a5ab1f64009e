"""BERT: a bidirectional encoder that learns by filling blanks.  Devlin et al. 2018."""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.models.configs.bert import BertConfig
from cloze.nn.encoder import Encoder
from cloze.nn.heads import Linear, Pooler
from cloze.nn.layers import ACTIVATIONS
from cloze.nn.layout import AttentionLayout, Packed, Varlen
from cloze.nn.shape import embeddings_of, masked_lm, post_norm_blocks


class Bert(Encoder):
    """Segments and learned positions, post-norm blocks, a tanh pooler."""

    HEADS: ClassVar[tuple[str, ...]] = ("mlm", "nsp", "sequence", "token", "span", "choice")

    def __init__(
        self, config: BertConfig, heads: Iterable[str] = (), *, pooler: bool | None = None
    ) -> None:
        """A BERT with the heads named.

        `pooler=None` adds the pooler where a head reads it, and where there is no head at all, as
        in the published base models.
        """
        built = {one_of("head", name, self.HEADS): _head(name, config) for name in heads}
        if pooler is None:
            pooler = not built or any(getattr(head, "pooled", False) for head in built.values())
        super().__init__(
            embeddings_of(config, config.type_vocab_size),
            post_norm_blocks(config),
            positions=config.max_positions,
            pooler=Pooler(config.hidden_size, ACTIVATIONS["tanh"]) if pooler else None,
            heads=built,
        )
        self.config = config
        self.is_causal = config.is_causal

    def gathered(
        self, head: str, hidden: Tensor, places: Tensor, allowed: AttentionLayout
    ) -> Tensor:
        """The vectors that a head reads; left to right a text's is its last, which saw all of it.

        The [CLS] that others read stands first, and a causal one sees nothing but itself.
        """
        if self.is_causal and getattr(self.heads[head], "pooled", False):
            places = lasts(hidden, allowed)
        return super().gathered(head, hidden, places, allowed)


def lasts(hidden: Tensor, allowed: AttentionLayout) -> Tensor:
    """Where the last token of each sequence stands, counted through all rows, b."""
    if isinstance(allowed, Packed):
        return allowed.starts + torch.tensor(allowed.lengths, device=allowed.device) - 1
    assert not isinstance(allowed, Varlen), "no head is read while rows are of unknown bounds"
    rows, length = hidden.shape[:2]
    firsts = torch.arange(0, rows * length, length, device=hidden.device)
    if allowed is None:
        return firsts + length - 1
    place = torch.arange(length, device=hidden.device)
    return firsts + (place * allowed).amax(1)  # allowed: b t


def _head(name: str, config: BertConfig) -> nn.Module:
    if name == "mlm":
        return masked_lm(config)
    dropout = config.dropout if config.classifier_dropout is None else config.classifier_dropout
    outputs, dropout, pooled = {
        "nsp": (2, 0.0, True),
        "sequence": (len(config.labels), dropout, True),
        "token": (len(config.labels), dropout, False),
        "span": (2, 0.0, False),  # start and end
        "choice": (1, dropout, True),
    }[name]
    return Linear(config.hidden_size, outputs, dropout=dropout, pooled=pooled)
