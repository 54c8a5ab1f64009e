"""Recurrent nets: an encoder over whole sequences, and a decoder's cells, step by step.

b batch, s source tokens, l layers, d width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import ConfigError
from cloze.nn.layers import Dropout

State = tuple[Tensor, ...]
"""Hidden states of all layers, l b d; an LSTM's memory beside them."""

NETS: dict[str, Callable[..., Any]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
CELLS: dict[str, Callable[[int, int], Any]] = {
    "rnn": nn.RNNCell,
    "lstm": nn.LSTMCell,
    "gru": nn.GRUCell,
}
PARTS = {"rnn": 1, "lstm": 2, "gru": 1}  # of a state
GATES = {"rnn": 1, "lstm": 4, "gru": 3}  # matrices that torch lays on top of each other


class RecurrentEncoder(nn.Module):
    """A stack of recurrent layers over padded sequences; each way has half of the width.

    The way back reads each sequence turned around within its own length, so no way ever meets
    padding before a real token. Packed sequences of torch would do the same, but must know the
    lengths on the host, for which a GPU waits. Each way of each layer stands alone, as in `Stack`.
    """

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
        net = NETS[one_of("recurrent net", kind, NETS)]
        self.layers = nn.ModuleList(
            nn.ModuleList(net(size, width // ways, batch_first=True) for _ in range(ways))
            for size in [inputs] + [width] * (layers - 1)
        )
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The state at each token (b s d; at padding anything), and the last of each layer (l b d).

        The last one of a way is the one that has read the whole sequence; both lie side by side.
        """
        places, last = torch.arange(x.shape[1], device=x.device), (lengths - 1)[:, None]  # s; b 1
        turned = torch.where(places <= last, last - places, places)[..., None]  # b s 1
        ends: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            if number:
                x = self.dropout(x)
            forth, *back = layer.children()
            states = [forth(x)[0]]
            end = [states[0].take_along_dim(last[..., None], 1)[:, 0]]
            for net in back:
                found = net(x.take_along_dim(turned, 1))[0]
                states.append(found.take_along_dim(turned, 1))
                end.append(states[-1][:, 0])
            x = torch.cat(states, -1)
            ends.append(torch.cat(end, -1))
        return x, torch.stack(ends)


class Cells(nn.Module):
    """A stack of recurrent cells that takes one step."""

    def __init__(self, kind: str, inputs: int, width: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        cell = CELLS[one_of("recurrent net", kind, CELLS)]
        self.cells = nn.ModuleList(cell(inputs if n == 0 else width, width) for n in range(layers))
        self.dropout = Dropout(dropout)
        self.parts = PARTS[kind]

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
    LSTM's memory comes from the same states by a matrix of its own.
    """

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.dense = nn.ModuleList(nn.Linear(width, width) for _ in range(parts))

    def forward(self, ends: Tensor) -> State:
        return tuple(torch.tanh(dense(ends)) for dense in self.dense)  # l b d


class Stack(nn.Module):
    """Recurrent layers that read a stretch of text from one state to the next.

    Dropout stands before each layer and after the last, never between two steps of a layer: drawn
    for every number (Zaremba et al. 2014), or once for all steps of a row (`variational`, Gal and
    Ghahramani 2016, but for their masks within the recurrence). Layers stand alone because cuDNN's
    dropout between its own draws from a generator that nobody can set.
    """

    def __init__(
        self, kind: str, inputs: int, width: int, *, layers: int, dropout: float, variational: bool
    ) -> None:
        super().__init__()
        net = NETS[one_of("recurrent net", kind, NETS)]
        sizes = [inputs] + [width] * (layers - 1)
        self.layers = nn.ModuleList(net(size, width, batch_first=True) for size in sizes)
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)
        self.parts = PARTS[kind]

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The top layer's state at every step (b t d), and the last of all layers."""
        found: list[State] = []
        for layer, *before in zip(self.layers, *state, strict=True):
            since = tuple(part[None] for part in before)
            x, after = layer(self.dropout(x), since if self.parts > 1 else since[0])
            found.append(tuple(part[0] for part in (after if self.parts > 1 else (after,))))
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
