"""Recurrent nets: an encoder over whole sequences, and a decoder's cells, step by step.

b batch, s source tokens, l layers, d width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cloze.config import one_of
from cloze.errors import ConfigError
from cloze.nn.dropout import Dropout

State = tuple[Tensor, ...]
"""Hidden states of all layers, l b d; an LSTM's memory beside them."""

NETS: dict[str, Callable[..., Any]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS: dict[str, Callable[[int, int], Any]] = {
    "rnn": nn.RNNCell,
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
}
GATES = {"rnn": 1, "lstm": 4, "gru": 3}  # matrices that torch lays on top of each other


class RecurrentEncoder(nn.Module):
    """A stack of recurrent layers over padded sequences; each way has half of the width."""

    def __init__(
        self,
        kind: str,
        inputs: int,
        width: int,
        *,
        layers: int,
        bidirectional: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        ways = 2 if bidirectional else 1
        if width % ways:
            raise ConfigError(f"width {width} does not split in two ways", fix="use an even width")
        self.net = NETS[one_of("recurrent net", kind, NETS)](
            inputs,
            width // ways,
            layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, State]:
        """The state at each token (b s d), and the last of each layer, both ways side by side."""
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.net(packed)
        memory, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
        ends = last if isinstance(last, tuple) else (last,)
        ways = 2 if self.net.bidirectional else 1
        # (l ways) b d -> l b (ways d); each way's last state has read the whole sequence
        return memory, tuple(
            end.unflatten(0, (-1, ways)).transpose(1, 2).flatten(-2) for end in ends
        )


class Cells(nn.Module):
    """A stack of recurrent cells that takes one step."""

    def __init__(self, kind: str, inputs: int, width: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        cell = CELLS[one_of("recurrent net", kind, CELLS)]
        self.cells = nn.ModuleList(cell(inputs if n == 0 else width, width) for n in range(layers))
        self.dropout = Dropout(dropout)
        self.parts = 2 if kind == "lstm" else 1

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The state of the top layer after one more input (b d), and those of all layers."""
        found: list[State] = []
        for number, cell in enumerate(self.cells):
            if number:
                x = self.dropout(x)
            before = tuple(part[number] for part in state)
            after = cell(x, before if self.parts > 1 else before[0])
            found.append(after if isinstance(after, tuple) else (after,))
            x = found[-1][0]
        return x, tuple(torch.stack(parts) for parts in zip(*found, strict=True))


class Bridge(nn.Module):
    """s₀ = tanh(W·h_last): the encoder's last states begin the decoder's.

    Bahdanau et al. 2014, appendix A.2.2, read the backward net's alone; here both ways', and an
    LSTM's memory has a matrix of its own.
    """

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.dense = nn.ModuleList(nn.Linear(width, width) for _ in range(parts))

    def forward(self, ends: State) -> State:
        return tuple(
            torch.tanh(dense(end)) for dense, end in zip(self.dense, ends, strict=True)
        )  # l b d


class Stack(nn.Module):
    """LSTM layers that read a stretch of text from one state to the next.

    Dropout stands before each layer and after the last, never between two steps of a layer: drawn
    for every number (Zaremba et al. 2014), or once for all steps of a row (`variational`, Gal and
    Ghahramani 2016, but for their masks within the recurrence). Layers stand alone because cuDNN's
    dropout between its own draws from a generator that nobody can set.
    """

    def __init__(
        self, inputs: int, width: int, *, layers: int, dropout: float, variational: bool
    ) -> None:
        super().__init__()
        sizes = [inputs] + [width] * (layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(size, width, batch_first=True) for size in sizes)
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The top layer's state at every step (b t d), and the last of all layers."""
        found: list[State] = []
        for layer, *before in zip(self.layers, *state, strict=True):
            x, after = layer(self.dropout(x), tuple(part[None] for part in before))
            found.append(tuple(part[0] for part in after))
        return self.dropout(x), tuple(torch.stack(parts) for parts in zip(*found, strict=True))


class LockedDropout(nn.Module):
    """Dropout that takes the same numbers of a row away at every step."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.rate):
            return x
        return x * nn.functional.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.rate)  # b t d
