"""Small nets that read the vectors of a frozen encoder.

n vectors of all rows one after another, d their width, c labels.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from cloze.nn.layers import Dropout


class LinearReader(nn.Module):
    """One linear layer: a logistic or a ridge regression."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, outputs)

    def forward(self, vectors: Tensor, sizes: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Scores of each vector, n c; `sizes`, the vectors of each row, do not matter."""
        return self.dense(vectors)


class BiLstmReader(nn.Module):
    """An LSTM each way over the words of a row, then one linear layer.

    The model on top of frozen BERT features in Devlin et al. 2018, §5.3.
    """

    def __init__(
        self, width: int, outputs: int, *, hidden: int, depth: int, dropout: float = 0.5
    ) -> None:
        super().__init__()
        between = dropout if depth > 1 else 0.0
        self.lstm = nn.LSTM(width, hidden, depth, bidirectional=True, dropout=between)
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(2 * hidden, outputs)

    def forward(self, vectors: Tensor, sizes: Sequence[int]) -> Tensor:
        """Scores of each vector, n c, from all of its row."""
        rows = [row for row in vectors.split(list(sizes)) if len(row)]
        packed, _ = self.lstm(pack_sequence(rows, enforce_sorted=False))
        return self.dense(self.dropout(torch.cat(unpack_sequence(packed))))


READERS: dict[str, Callable[..., nn.Module]] = {"linear": LinearReader, "bilstm": BiLstmReader}
