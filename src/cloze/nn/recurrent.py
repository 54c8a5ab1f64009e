"""Recurrent networks: over whole sequences, and step by step.

b batch, s source tokens, t tokens, l layers, d width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import ConfigError
from cloze.nn.layers import Dropout

State = tuple[Tensor, ...]
"""Hidden states of all layers, l b d; of an LSTM the cell states too."""

NETS: dict[str, Callable[..., Any]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS: dict[str, Callable[[int, int], Any]] = {
    "rnn": nn.RNNCell,
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
}
STATE_PARTS = {"rnn": 1, "lstm": 2, "gru": 1}  # tensors of a state
GATES = {"rnn": 1, "lstm": 4, "gru": 3}  # matrices that torch stacks in one weight


class RecurrentEncoder(nn.Module):
    """Recurrent layers over padded sequences; each direction has half of the hidden size.

    The backward direction reads each sequence reversed within its own length, so neither direction
    reads padding before a real token. torch's packed sequences do the same, but need the lengths on
    the host, which would have to wait for the GPU. Each direction of each layer is a separate
    module, as in `StackedRNN`.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        num_layers: int,
        bidirectional: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        directions = 2 if bidirectional else 1
        if hidden_size % directions:
            raise ConfigError(
                f"hidden_size {hidden_size} is odd, and a bidirectional encoder halves it",
                fix="use an even hidden_size",
            )
        net = NETS[one_of("cell", cell, NETS)]
        size = hidden_size // directions
        self.layers = nn.ModuleList(
            nn.ModuleList(net(inputs, size, batch_first=True) for _ in range(directions))
            for inputs in [input_size] + [hidden_size] * (num_layers - 1)
        )
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The state at each token (b s d; arbitrary at padding), and each layer's last (l b d).

        The last state of a direction is the one that has read the whole sequence; those of both
        directions are concatenated.
        """
        position, last = torch.arange(x.shape[1], device=x.device), (lengths - 1)[:, None]  # s; b 1
        reverse = torch.where(position <= last, last - position, position)[..., None]  # b s 1
        last_states: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout(x)
            forward, *backward = layer.children()
            states = [forward(x)[0]]
            ends = [states[0].take_along_dim(last[..., None], 1)[:, 0]]
            for net in backward:
                reversed_states = net(x.take_along_dim(reverse, 1))[0]
                states.append(reversed_states.take_along_dim(reverse, 1))
                ends.append(states[-1][:, 0])
            x = torch.cat(states, -1)
            last_states.append(torch.cat(ends, -1))
        return x, torch.stack(last_states)


class StackedCells(nn.Module):
    """A stack of recurrent cells that computes one step at a time."""

    def __init__(
        self, cell: str, input_size: int, hidden_size: int, *, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        kind = CELLS[one_of("cell", cell, CELLS)]
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.cells = nn.ModuleList(kind(size, hidden_size) for size in sizes)
        self.dropout = Dropout(dropout)
        self.state_parts = STATE_PARTS[cell]

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The state of the top layer after one more input (b d), and those of all layers."""
        states: list[State] = []
        for number, cell in enumerate(self.cells):
            if number:
                x = self.dropout(x)
            before = tuple(part[number] for part in state)
            after = cell(x, before if self.state_parts > 1 else before[0])
            states.append(after if isinstance(after, tuple) else (after,))
            x = states[-1][0]
        return x, tuple(torch.stack(parts) for parts in zip(*states, strict=True))


class Bridge(nn.Module):
    """s₀ = tanh(W·h_last): the decoder's first states from the encoder's last.

    Bahdanau et al. 2014, appendix A.2.2, use the backward direction only; here both are used, and
    the cell states of an LSTM come from the same states through a matrix of their own.
    """

    def __init__(self, hidden_size: int, state_parts: int) -> None:
        super().__init__()
        self.dense = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(state_parts))

    def forward(self, last_states: Tensor) -> State:
        return tuple(torch.tanh(dense(last_states)) for dense in self.dense)  # l b d


class StackedRNN(nn.Module):
    """Recurrent layers that read a slice of text from one state to the next.

    Dropout is applied before each layer and after the last, never between two steps of a layer:
    drawn for every element (Zaremba et al. 2014), or once for all steps of a row (`variational`,
    Gal and Ghahramani 2016, without their masks within the recurrence). Each layer is a separate
    module because cuDNN's dropout between layers cannot be seeded.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        num_layers: int,
        dropout: float,
        variational: bool,
    ) -> None:
        super().__init__()
        net = NETS[one_of("cell", cell, NETS)]
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(net(size, hidden_size, batch_first=True) for size in sizes)
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)
        self.state_parts = STATE_PARTS[cell]

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The top layer's state at every step (b t d), and the last of all layers."""
        states: list[State] = []
        for layer, *parts in zip(self.layers, *state, strict=True):
            before = tuple(part[None] for part in parts)
            x, after = layer(self.dropout(x), before if self.state_parts > 1 else before[0])
            states.append(tuple(part[0] for part in (after if self.state_parts > 1 else (after,))))
        return self.dropout(x), tuple(torch.stack(parts) for parts in zip(*states, strict=True))


class LockedDropout(nn.Module):
    """Dropout of the same elements of a row at every step."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p):
            return x
        return x * nn.functional.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p)  # b t d
