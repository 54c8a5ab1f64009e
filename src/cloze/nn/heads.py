"""Small nets on top of an encoder, each reading vectors of the last layer.

b sequences, t any leading axes, d width, v vocabulary, c labels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.activations import Activation
from cloze.nn.dropout import Dropout


class Pooler(nn.Module):
    """activation(W·[CLS]): BERT's pooler with tanh, DistilBERT's pre-classifier with ReLU."""

    def __init__(self, width: int, activation: Activation) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation

    def forward(self, first: Tensor) -> Tensor:
        return self.activation(self.dense(first))  # b d


class MaskedLM(nn.Module):
    """Vocabulary scores: a transform, then the product with the embedding table, tied or its own.

    Give it the vectors of the masked positions only: the product with the table is the dearest
    step of a small model.
    """

    def __init__(
        self, width: int, vocab_size: int, activation: Activation, *, norm_eps: float, tied: bool
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation
        self.norm = nn.LayerNorm(width, eps=norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.weight = None if tied else nn.Parameter(torch.empty(vocab_size, width))

    def forward(self, vectors: Tensor, table: Tensor) -> Tensor:
        """Scores of each word for each vector; `table` is the embedding table (v d)."""
        x = self.norm(self.activation(self.dense(vectors)))  # t d
        return F.linear(x, table if self.weight is None else self.weight, self.bias)  # t v


class Linear(nn.Module):
    """Dropout and one linear layer: all of BERT's task heads.

    `pooled` heads read the pooler's output at [CLS] (next sentence, sequence, choice); the others
    read every token (token, span).
    """

    def __init__(self, width: int, outputs: int, *, dropout: float, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(width, outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.dense(self.dropout(vectors))  # t c
