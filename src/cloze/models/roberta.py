"""RoBERTa: BERT without next-sentence prediction, trained longer.  Liu et al. 2019.

XLM-R (Conneau et al. 2020) is the same network with another vocabulary. Differences from BERT:
positions are counted from `pad_id + 1`, all tokens have the same type, and the classification head
has its own hidden layer instead of the pooler.
"""

from collections.abc import Iterable
from typing import ClassVar

from cloze.config import one_of
from cloze.models.configs.roberta import RobertaConfig
from cloze.models.model_parts import build_mlm_head, build_post_norm_block
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import ClassificationHead, LinearHead, Pooler, TaskHead
from cloze.nn.layers import ACTIVATIONS


class Roberta(Encoder):
    """Learned positions from `pad_id + 1` on, post-norm blocks."""

    TASK_HEADS: ClassVar[tuple[str, ...]] = ("mlm", "sequence", "token", "span", "choice")

    def __init__(
        self, config: RobertaConfig, task_heads: Iterable[str] = (), *, pooler: bool | None = None
    ) -> None:
        """A RoBERTa with these heads; `pooler=None` adds one for `choice`, or without heads."""
        heads = {
            one_of("head", name, self.TASK_HEADS): _build_head(name, config) for name in task_heads
        }
        if pooler is None:
            pooler = not heads or "choice" in heads
        super().__init__(
            Embeddings(
                vocab_size=config.vocab_size,
                hidden_size=config.hidden_size,
                max_positions=config.max_positions,
                position_offset=config.position_offset,
                type_vocab_size=1,
                dropout=config.dropout,
                norm_eps=config.norm_eps,
            ),
            (build_post_norm_block(config) for _ in range(config.num_layers)),
            max_positions=config.max_positions,
            pooler=Pooler(config.hidden_size, ACTIVATIONS["tanh"]) if pooler else None,
            task_heads=heads,
        )
        self.config = config


def _build_head(name: str, config: RobertaConfig) -> TaskHead:
    size, labels = config.hidden_size, len(config.labels)
    dropout = config.dropout if config.classifier_dropout is None else config.classifier_dropout
    if name == "mlm":
        return build_mlm_head(config, "gelu")  # independent of the blocks' activation
    if name == "sequence":
        return ClassificationHead(size, labels, ACTIVATIONS["tanh"], dropout=dropout)
    if name == "token":
        return LinearHead(size, labels, dropout=dropout, uses_pooler=False)
    if name == "span":  # start and end
        return LinearHead(size, 2, dropout=0.0, uses_pooler=False)
    return LinearHead(size, 1, dropout=config.dropout, uses_pooler=True)  # choice
