"""Task heads on the vectors of an encoder's last layer.

b sequences, n vectors of all sequences concatenated, t any leading axes, d width,
v vocabulary, c labels.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.layers import Activation, Dropout, LayerNorm


class Pooler(nn.Module):
    """activation(W·[CLS]): BERT's pooler with tanh, DistilBERT's pre-classifier with ReLU."""

    def __init__(self, hidden_size: int, activation: Activation) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = activation

    def forward(self, first: Tensor) -> Tensor:
        return self.activation(self.dense(first))  # b d


class HeadTransform(nn.Module):
    """norm(activation(W·x)), between the last layer and every head of a ModernBERT."""

    def __init__(self, dense: nn.Linear, activation: Activation, norm: LayerNorm) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm

    def forward(self, vectors: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(vectors)))  # t d


class LMHead(nn.Module):
    """Logits over the vocabulary: the product with the embedding table, tied or its own.

    Pass it the vectors of masked positions only: this product is the most expensive step of a small
    model.
    """

    uses_pooler = False

    def __init__(self, hidden_size: int, vocab_size: int, *, tied: bool, bias: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None
        self.weight = None if tied else nn.Parameter(torch.empty(vocab_size, hidden_size))

    def operands(self, vectors: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Hidden vectors, weight and bias of the product; `table` is the embedding table (v d)."""
        return vectors, table if self.weight is None else self.weight, self.bias

    def forward(self, vectors: Tensor, table: Tensor) -> Tensor:
        """T d -> t v."""
        return F.linear(*self.operands(vectors, table))


class MLMHead(LMHead):
    """BERT's masked-LM head: a transform of its own before the product."""

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        activation: Activation,
        *,
        norm_eps: float,
        tied: bool,
    ) -> None:
        super().__init__(hidden_size, vocab_size, tied=tied)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = activation
        self.norm = LayerNorm(hidden_size, eps=norm_eps)

    def operands(self, vectors: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """As above, with transformed vectors."""
        return super().operands(self.norm(self.activation(self.dense(vectors))), table)


class LinearHead(nn.Module):
    """Dropout and one linear layer: all other task heads of BERT and its relatives.

    Heads with `uses_pooler` read the pooler's output at [CLS] (next sentence, sequence, choice);
    the others read every token (token, span).
    """

    def __init__(
        self,
        hidden_size: int,
        outputs: int,
        *,
        dropout: float,
        uses_pooler: bool,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.uses_pooler = uses_pooler
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(hidden_size, outputs, bias=bias)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.dense(self.dropout(vectors))  # t c


class ClassificationHead(nn.Module):
    """RoBERTa's classification head: a hidden layer at the first token, then a linear one.

    out(dropout(activation(dense(dropout(x))))).
    """

    uses_pooler = True  # it reads one vector per sequence

    def __init__(
        self, hidden_size: int, outputs: int, activation: Activation, *, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.activation = activation
        self.out = nn.Linear(hidden_size, outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        hidden = self.activation(self.dense(self.dropout(vectors)))  # b d
        return self.out(self.dropout(hidden))  # b c


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization; a batch of one row, which has no variance, uses the running values."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.register_buffer("num_batches_tracked", None)  # it does not average over all batches

    def forward(self, vectors: Tensor) -> Tensor:
        if self.training and len(vectors) == 1:
            return F.batch_norm(
                vectors, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        return super().forward(vectors)


class PooledClassificationHead(nn.Module):
    """Two linear blocks on pooled states, each with batch normalization and dropout.

    out(dropout(norm(ReLU(dense(dropout(norm(x))))))).  Howard & Ruder 2018, §3.3.
    """

    uses_pooler = True  # it reads one vector per sequence

    def __init__(
        self, input_size: int, size: int, outputs: int, *, dropout: float, hidden_dropout: float
    ) -> None:
        super().__init__()
        self.norm = BatchNorm(input_size)
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(input_size, size)
        self.hidden_norm = BatchNorm(size)
        self.hidden_dropout = Dropout(hidden_dropout)
        self.out = nn.Linear(size, outputs)

    def forward(self, vectors: Tensor) -> Tensor:
        hidden = self.dense(self.dropout(self.norm(vectors))).relu()  # b d
        return self.out(self.hidden_dropout(self.hidden_norm(hidden)))  # b c


TaskHead = LMHead | LinearHead | ClassificationHead
