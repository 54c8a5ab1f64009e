"""RoBERTa: BERT without next-sentence prediction, trained longer.  Liu et al. 2019.

XLM-R (Conneau et al. 2020) is the same network with another vocabulary. The change from BERT:
positions are counted from `pad_id + 1`, all tokens have one type, and the head for labels of
sequences has a hidden layer of its own, so that there is no pooler beside it.
"""

from collections.abc import Iterable
from typing import ClassVar

from cloze.config import one_of
from cloze.models.configs.roberta import RobertaConfig
from cloze.models.encoder_parts import make_mlm_head, make_post_norm_block
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
        """A RoBERTa with these heads; `pooler=None` adds it for `choice` and without any head."""
        heads = {one_of("head", name, self.TASK_HEADS): _head(name, config) for name in task_heads}
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
            (make_post_norm_block(config) for _ in range(config.num_layers)),
            max_positions=config.max_positions,
            pooler=Pooler(config.hidden_size, ACTIVATIONS["tanh"]) if pooler else None,
            task_heads=heads,
        )
        self.config = config


def _head(name: str, config: RobertaConfig) -> TaskHead:
    size, labels = config.hidden_size, len(config.labels)
    dropout = config.dropout if config.classifier_dropout is None else config.classifier_dropout
    if name == "mlm":
        return make_mlm_head(config, "gelu")  # whatever the blocks have
    if name == "sequence":
        return ClassificationHead(size, labels, ACTIVATIONS["tanh"], dropout=dropout)
    if name == "token":
        return LinearHead(size, labels, dropout=dropout, uses_pooler=False)
    if name == "span":  # start and end
        return LinearHead(size, 2, dropout=0.0, uses_pooler=False)
    return LinearHead(size, 1, dropout=config.dropout, uses_pooler=True)  # choice
