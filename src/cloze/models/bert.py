"""BERT: a bidirectional encoder pre-trained with masked language modelling.  Devlin et al. 2018.

b sequences, t tokens, m positions read by a head, d width.
"""

from collections.abc import Iterable
from typing import ClassVar

from cloze.config import one_of
from cloze.models.configs.bert import BertConfig
from cloze.models.model_parts import build_mlm_head, build_post_norm_block
from cloze.nn.embeddings import Embeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import LinearHead, Pooler, TaskHead
from cloze.nn.layers import ACTIVATIONS


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
