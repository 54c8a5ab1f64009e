"""DistilBERT: BERT's blocks without segments and pooler, half as many.  Sanh et al. 2019."""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import nn

from cloze.config import one_of
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import Linear, Pooler
from cloze.nn.layers import ACTIVATIONS
from cloze.nn.positions import sinusoids
from cloze.nn.shape import embeddings_of, masked_lm, post_norm_blocks


class DistilBert(Encoder):
    """No segments; the sequence and choice heads bring a ReLU layer of their own for a pooler."""

    HEADS: ClassVar[tuple[str, ...]] = ("mlm", "sequence", "token", "span", "choice")
    embeddings: Embeddings

    def __init__(self, config: DistilBertConfig, heads: Iterable[str] = ()) -> None:
        built = {one_of("head", name, self.HEADS): _head(name, config) for name in heads}
        pooled = any(getattr(head, "pooled", False) for head in built.values())
        super().__init__(
            embeddings_of(config),
            post_norm_blocks(config),
            positions=config.max_positions,
            pooler=Pooler(config.hidden_size, ACTIVATIONS["relu"]) if pooled else None,
            heads=built,
        )
        self.config = config

    def initialise(self, deviation: float, rng: torch.Generator) -> None:
        super().initialise(deviation, rng)
        if self.config.sinusoidal_positions:
            table = self.embeddings.position.weight
            table.data.copy_(sinusoids(*table.shape))


def _head(name: str, config: DistilBertConfig) -> nn.Module:
    if name == "mlm":
        return masked_lm(config)
    outputs, dropout, pooled = {
        "sequence": (len(config.labels), config.classifier_dropout, True),
        "token": (len(config.labels), config.dropout, False),
        "span": (2, config.qa_dropout, False),  # start and end
        "choice": (1, config.classifier_dropout, True),
    }[name]
    return Linear(config.hidden_size, outputs, dropout=dropout, pooled=pooled)
