"""DistilBERT: BERT with half the layers, no token types and no pooler.  Sanh et al. 2019."""

from collections.abc import Iterable
from typing import ClassVar

import torch

from cloze.config import one_of
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.models.model_parts import build_mlm_head, build_post_norm_block
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LinearHead, Pooler, TaskHead
from cloze.nn.layers import ACTIVATIONS
from cloze.nn.positions import compute_sinusoids


class DistilBert(Encoder):
    """The sequence and choice heads have a ReLU layer instead of a tanh pooler."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ("mlm", "sequence", "token", "span", "choice")
    embeddings: Embeddings

    def __init__(self, config: DistilBertConfig, task_heads: Iterable[str] = ()) -> None:
        heads = {
            one_of("head", name, self.TASK_HEADS): _build_head(name, config) for name in task_heads
        }
        has_pooler = any(head.uses_pooler for head in heads.values())
        super().__init__(
            Embeddings(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                max_positions=config.max_positions,
                type_vocab_size=0,
                dropout=config.dropout,
                norm_eps=config.norm_eps,
            ),
            (build_post_norm_block(config) for _ in range(config.num_layers)),
            max_positions=config.max_positions,
            pooler=Pooler(config.hidden_size, ACTIVATIONS["relu"]) if has_pooler else None,
            task_heads=heads,
        )
        self.config = config

    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        super().init_weights(init_std, rng)
        if self.config.sinusoidal_positions:
            table = self.embeddings.position.weight
            table.data.copy_(compute_sinusoids(*table.shape))


def _build_head(name: str, config: DistilBertConfig) -> TaskHead:
    if name == "mlm":
        return build_mlm_head(config)
    outputs, dropout, uses_pooler = {
        "sequence": (len(config.labels), config.classifier_dropout, True),
        "token": (len(config.labels), config.dropout, False),
        "span": (2, config.qa_dropout, False),  # start and end
        "choice": (1, config.classifier_dropout, True),
    }[name]
    return LinearHead(config.hidden_size, outputs, dropout=dropout, uses_pooler=uses_pooler)
