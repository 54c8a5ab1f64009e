"""Task models on frozen features: a linear layer, a BiLSTM, a CNN.

b sequences, n vectors of all sequences concatenated, l layers, d width, c labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_sequence

from cloze.nn.layers import Dropout

Ints = NDArray[np.int64]
UNKNOWN = 0  # the row of words that are not in the vocabulary of a task model


@dataclass(frozen=True, kw_only=True)
class FeatureInputs:
    """What a task model reads, and how."""

    mixed_layers: int = 0  # of which it learns a weighted sum; 0: none
    learns_weights: bool = True  # of the sum; otherwise the weights stay equal
    learns_scale: bool = True  # γ of the sum; otherwise it stays 1
    dropout: float = 0.0  # of the contextual vectors
    contextual: str = "input"  # where they enter a BiLSTM: input, output, both or none
    vocab_size: int = 0  # of its own word embeddings, with the row of unknown words; 0: none
    embedding_size: int = 0
    pooling: str | None = None  # a BiLSTM for texts: max or mean of its states
    compares_pairs: bool = False  # sequences are u₁, v₁, u₂, v₂ …: the texts of pairs

    def make_mix(self, *positions: str) -> nn.Module:
        """The weighted sum of layers at one of these positions."""
        if not self.mixed_layers or self.contextual not in positions:
            return nn.Identity()
        return ScalarMix(
            self.mixed_layers, learns_weights=self.learns_weights, learns_scale=self.learns_scale
        )


class ScalarMix(nn.Module):
    """γ·Σⱼ softmax(s)ⱼ·hⱼ: a learned weighted sum of the layers of an encoder.

    Peters et al. 2018, eq. 1. At the start all layers have the same weight and γ is 1.
    """

    scores: Tensor  # s
    scale: Tensor  # γ

    def __init__(
        self, num_layers: int, *, learns_weights: bool = True, learns_scale: bool = True
    ) -> None:
        super().__init__()
        for name, value, is_learned in (
            ("scores", torch.zeros(num_layers), learns_weights),
            ("scale", torch.ones(()), learns_scale),
        ):
            if is_learned:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def forward(self, vectors: Tensor) -> Tensor:
        """The concatenated layers of each vector, n (l d), to their weighted sum, n d."""
        layers = vectors.unflatten(-1, (len(self.scores), -1))
        return self.scale * torch.einsum("l,nld->nd", self.scores.softmax(0), layers)


def compare_pairs(vectors: Tensor) -> Tensor:
    """[u; v; |u − v|; u·v] of each two neighbours.  Conneau et al. 2017, §3: 2b d -> b 4d."""
    u, v = vectors[::2], vectors[1::2]
    return torch.cat([u, v, (u - v).abs(), u * v], -1)


class FeatureHead(nn.Module):
    """A network on frozen features.

    `vocabulary` are the words of its own embeddings, from row 1 on.
    """

    per_sequence = False  # whether it has one output for each sequence or pair, else per vector
    vocabulary: Sequence[str] = ()

    def __init__(self, inputs: FeatureInputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.mix = inputs.make_mix("input", "both")

    def forward(
        self, vectors: Tensor, lengths: Sequence[int], words: Tensor | None = None
    ) -> Tensor:
        """Logits of each vector, n c, or of each sequence or pair, b c.

        `lengths` are the numbers of vectors per sequence, `words` (n) the rows of own embeddings.
        """
        raise NotImplementedError

    def finish(self, sequences: Tensor) -> Tensor:
        """The vectors of sequences, b d; of pairs, one for both, b 4d."""
        return compare_pairs(sequences) if self.inputs.compares_pairs else sequences

    @property
    def num_parts(self) -> int:
        """The size of what `finish` returns, in multiples of d."""
        return 4 if self.inputs.compares_pairs else 1


class LinearFeatureHead(FeatureHead):
    """A linear layer on frozen features: logistic or ridge regression."""

    def __init__(
        self, input_size: int, outputs: int, *, inputs: FeatureInputs | None = None
    ) -> None:
        super().__init__(inputs or FeatureInputs())
        self.per_sequence = self.inputs.compares_pairs
        self.dense = nn.Linear(self.num_parts * input_size, outputs)

    def forward(
        self,
        vectors: Tensor,
        lengths: Sequence[int],  # noqa: ARG002
        words: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Logits of each vector or pair of vectors, n c."""
        return self.dense(self.finish(self.mix(vectors)))


class BiLSTMFeatureHead(FeatureHead):
    """A bidirectional LSTM over the words of a sequence, then a linear layer.

    On contextual vectors alone it is the model of Devlin et al. 2018, §5.3. With word embeddings of
    its own, contextual vectors are added at its input, [x; ELMo], at its output, [h; ELMo], or
    both, each with its own weighted sum of layers (Peters et al. 2018, §3.3); without contextual
    vectors it is the baseline. With `inputs.pooling` it classifies texts.
    """

    def __init__(
        self,
        input_size: int,
        outputs: int,
        *,
        hidden_size: int,
        num_layers: int,
        dropout: float = 0.5,
        inputs: FeatureInputs | None = None,
    ) -> None:
        super().__init__(inputs or FeatureInputs())
        self.per_sequence = self.inputs.pooling is not None
        position, size = self.inputs.contextual, self.inputs.embedding_size
        if size:
            self.embeddings = nn.Embedding(self.inputs.vocab_size, size)
        if position in ("output", "both"):
            self.output_mix = self.inputs.make_mix("output", "both")
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(
            size + (input_size if position in ("input", "both") else 0),
            hidden_size,
            num_layers,
            bidirectional=True,
            dropout=between,
        )
        self.dropout = Dropout(dropout)
        self.contextual_dropout = Dropout(self.inputs.dropout)
        states = 2 * hidden_size + (input_size if position in ("output", "both") else 0)
        self.dense = nn.Linear(self.num_parts * states, outputs)

    def forward(
        self, vectors: Tensor, lengths: Sequence[int], words: Tensor | None = None
    ) -> Tensor:
        """Logits of each word, n c, or of each text or pair, b c."""
        position = self.inputs.contextual
        parts = [] if words is None else [self.dropout(self.embeddings(words))]
        if position in ("input", "both"):
            parts.append(self.contextual_dropout(self.mix(vectors)))
        x = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        states = self.dropout(self._read(x, lengths))  # n d
        if position in ("output", "both"):
            contextual = self.contextual_dropout(self.output_mix(vectors))
            states = torch.cat([states, contextual], -1)
        if self.inputs.pooling is None:
            return self.dense(states)
        texts = [self._pool(row) for row in states.split(list(lengths))]
        return self.dense(self.finish(torch.stack(texts)))

    def _read(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """The states of the LSTM at each vector: n d -> n d.

        torch's `unpack_sequence` would wait for the GPU once for each sequence.
        """
        order, counts = order_by_time(lengths)
        at = torch.from_numpy(order).to(x.device)
        packed, _ = self.lstm(PackedSequence(x.index_select(0, at), torch.from_numpy(counts)))
        back = torch.empty_like(at)
        back[at] = torch.arange(len(at), device=at.device)
        return packed.data.index_select(0, back)

    def _pool(self, states: Tensor) -> Tensor:
        return states.amax(0) if self.inputs.pooling == "max" else states.mean(0)


def order_by_time(lengths: Sequence[int]) -> tuple[Ints, Ints]:
    """Concatenated sequences in the order of torch's packed sequences, the longest first.

    The vectors of all first steps, those of all second steps, …, as indices; and the number of
    sequences that have each step.
    """
    sizes = np.asarray(lengths, np.int64)
    rank = np.empty_like(sizes)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    starts = sizes.cumsum() - sizes
    time = np.arange(sizes.sum()) - starts.repeat(sizes)
    return np.lexsort((rank.repeat(sizes), time)), np.bincount(time)


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
        inputs: FeatureInputs | None = None,
    ) -> None:
        super().__init__(inputs or FeatureInputs())
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(size, hidden_size, kernel_size, padding=kernel_size // 2) for size in sizes
        )
        self.dropout = Dropout(0.5)
        self.dense = nn.Linear(self.num_parts * hidden_size, outputs)
        self.receptive_field = 1 + num_layers * (kernel_size - 1)

    def forward(
        self,
        vectors: Tensor,
        lengths: Sequence[int],
        words: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Logits of each sequence or pair, b c; `lengths` are the vectors per sequence."""
        rows = pad_sequence(list(self.mix(vectors).split(list(lengths))), batch_first=True)
        texts = self.encode(rows, lengths).amax(1)  # b t d -> b d
        return self.dense(self.dropout(self.finish(texts)))

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
