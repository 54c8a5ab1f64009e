"""Task heads on the vectors of an encoder's last layer, and heads on frozen features.

b sequences, n vectors of all sequences concatenated, t any leading axes, d width,
v vocabulary, c labels.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence, pad_sequence, unpack_sequence

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


class ScalarMix(nn.Module):
    """γ·Σⱼ softmax(s)ⱼ·hⱼ: a learned weighted sum of the layers of an encoder.

    Peters et al. 2018, eq. 1. At the start all layers have the same weight and γ is 1.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(num_layers))  # s
        self.scale = nn.Parameter(torch.ones(()))  # γ

    def forward(self, vectors: Tensor) -> Tensor:
        """The concatenated layers of each vector, n (l d), to their weighted sum, n d."""
        layers = vectors.unflatten(-1, (len(self.scores), -1))
        return self.scale * torch.einsum("l,nld->nd", self.scores.softmax(0), layers)


class FeatureHead(nn.Module):
    """A network on frozen features; with `mixed_layers` these are first mixed to one layer."""

    per_sequence = False  # whether it has one output for each sequence, else for each vector

    def __init__(self, mixed_layers: int = 0) -> None:
        super().__init__()
        self.mix = ScalarMix(mixed_layers) if mixed_layers else nn.Identity()


class LinearFeatureHead(FeatureHead):
    """A linear layer on frozen features: logistic or ridge regression."""

    def __init__(self, input_size: int, outputs: int, *, mixed_layers: int = 0) -> None:
        super().__init__(mixed_layers)
        self.dense = nn.Linear(input_size, outputs)

    def forward(self, vectors: Tensor, lengths: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Logits of each vector, n c; `lengths` (vectors per sequence) is not used."""
        return self.dense(self.mix(vectors))


class BiLSTMFeatureHead(FeatureHead):
    """A bidirectional LSTM over the frozen features of a sequence, then a linear layer.

    The model on top of frozen BERT features in Devlin et al. 2018, §5.3.
    """

    def __init__(
        self,
        input_size: int,
        outputs: int,
        *,
        hidden_size: int,
        num_layers: int,
        dropout: float = 0.5,
        mixed_layers: int = 0,
    ) -> None:
        super().__init__(mixed_layers)
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(
            input_size, hidden_size, num_layers, bidirectional=True, dropout=between
        )
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(2 * hidden_size, outputs)

    def forward(self, vectors: Tensor, lengths: Sequence[int]) -> Tensor:
        """Logits of each vector, n c; `lengths` are the numbers of vectors per sequence."""
        rows = [row for row in self.mix(vectors).split(list(lengths)) if len(row)]
        packed, _ = self.lstm(pack_sequence(rows, enforce_sorted=False))
        return self.dense(self.dropout(torch.cat(unpack_sequence(packed))))


class CNNFeatureHead(FeatureHead):
    """1-D convolutions over the frozen features of a sequence, their maximum, a linear layer.

    Kim 2014 with layers on top of each other instead of filters of several widths side by side:
    one layer joins `kernel_size` neighbours, so a position of the last layer depends on
    1 + num_layers·(kernel_size − 1) vectors (`receptive_field`).
    """

    per_sequence = True

    def __init__(
        self,
        input_size: int,
        outputs: int,
        *,
        hidden_size: int,
        num_layers: int,
        kernel_size: int,
        mixed_layers: int = 0,
    ) -> None:
        super().__init__(mixed_layers)
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(size, hidden_size, kernel_size, padding=kernel_size // 2) for size in sizes
        )
        self.dropout = Dropout(0.5)
        self.dense = nn.Linear(hidden_size, outputs)
        self.receptive_field = 1 + num_layers * (kernel_size - 1)

    def forward(self, vectors: Tensor, lengths: Sequence[int]) -> Tensor:
        """Logits of each sequence, b c; `lengths` are the numbers of vectors per sequence."""
        rows = pad_sequence(list(self.mix(vectors).split(list(lengths))), batch_first=True)
        return self.dense(self.dropout(self.encode(rows, lengths).amax(1)))  # b t d -> b c

    def encode(self, rows: Tensor, lengths: Sequence[int]) -> Tensor:
        """The output of the last convolution at each position, b t d; zero at padding."""
        index = torch.arange(rows.shape[1], device=rows.device)
        is_token = index < torch.tensor(list(lengths), device=rows.device)[:, None]  # b t
        x = rows.mT  # b d t
        for convolution in self.convolutions:
            # ReLU outputs are not negative: zeros at padding do not change the maximum
            x = F.relu(convolution(x)) * is_token[:, None]
        return x.mT


FEATURE_HEADS: dict[str, Callable[..., FeatureHead]] = {
    "linear": LinearFeatureHead,
    "bilstm": BiLSTMFeatureHead,
    "cnn": CNNFeatureHead,
}
