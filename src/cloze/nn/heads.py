"""Small nets on top of an encoder, each reading vectors of the last layer.

b sequences, t any leading axes, d width, v vocabulary, c labels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.layers import Activation, Dropout, LayerNorm


class Pooler(nn.Module):
    """activation(W·[CLS]): BERT's pooler with tanh, DistilBERT's pre-classifier with ReLU."""

    def __init__(self, width: int, activation: Activation) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation

    def forward(self, first: Tensor) -> Tensor:
        return self.activation(self.dense(first))  # b d


class Transform(nn.Module):
    """norm(activation(W·x)), between the last layer and every head of a ModernBERT."""

    def __init__(self, dense: nn.Linear, activation: Activation, norm: LayerNorm) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm

    def forward(self, vectors: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(vectors)))  # t d


class WordScores(nn.Module):
    """Vocabulary scores: the product with the embedding table, tied or its own.

    Give it the vectors of the masked positions only: the product with the table is the dearest
    step of a small model.
    """

    def __init__(self, width: int, vocab_size: int, *, tied: bool, bias: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.weight = None if tied else nn.Parameter(torch.empty(vocab_size, width))

    def factors(self, vectors: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What is multiplied, with what, and what is added."""
        return vectors, table if self.weight is None else self.weight, self.bias

    def forward(self, vectors: Tensor, table: Tensor) -> Tensor:
        """Scores of each word for each vector; `table` is the embedding table (v d)."""
        return F.linear(*self.factors(vectors, table))  # t v


class MaskedLM(WordScores):
    """BERT's: a transform of its own before the product."""

    def __init__(
        self, width: int, vocab_size: int, activation: Activation, *, norm_eps: float, tied: bool
    ) -> None:
        super().__init__(width, vocab_size, tied=tied)
        self.dense = nn.Linear(width, width)
        self.activation = activation
        self.norm = LayerNorm(width, eps=norm_eps)

    def factors(self, vectors: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The transform comes first."""
        return super().factors(self.norm(self.activation(self.dense(vectors))), table)


class Linear(nn.Module):
    """Dropout and one linear layer: all task heads of BERT and its kin.

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
