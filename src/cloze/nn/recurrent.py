"""Recurrent networks: over whole sequences, and step by step.

b batch, s source tokens, t tokens, l layers, d width.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
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
        last_states: list[Tensor] = []
        for states, ends in self.iterate_layers(x, lengths):
            x = states
            last_states.append(ends)
        return x, torch.stack(last_states)

    def iterate_layers(self, x: Tensor, lengths: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The states of each layer at every token (b s d), and its last ones (b d)."""
        position, last = torch.arange(x.shape[1], device=x.device), (lengths - 1)[:, None]  # s; b 1
        reverse = torch.where(position <= last, last - position, position)[..., None]  # b s 1
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
            yield x, torch.cat(ends, -1)


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
    Gal and Ghahramani 2016, without their masks within the recurrence). Input, hidden and output
    dropout may differ, and `weight_dropout` drops weights of the hidden-to-hidden matrices
    (Merity et al. 2018, §2 and §4). Each layer is a separate module because cuDNN's dropout between
    layers cannot be seeded.

    The last layer may have a size of its own (`output_size`); the state of a smaller layer is
    padded with zeros, so that those of all layers are one tensor.
    """

    def __init__(  # noqa: PLR0913 (all by keyword)
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        num_layers: int,
        dropout: float,
        variational: bool,
        input_dropout: float | None = None,
        output_dropout: float | None = None,
        weight_dropout: float = 0.0,
        output_size: int | None = None,
    ) -> None:
        super().__init__()
        net = NETS[one_of("cell", cell, NETS)]
        sizes = [input_size] + [hidden_size] * (num_layers - 1) + [output_size or hidden_size]
        self.layers = nn.ModuleList(
            net(inputs, size, batch_first=True) for inputs, size in pairwise(sizes)
        )
        drop = LockedDropout if variational else Dropout
        self.input_dropout = drop(dropout if input_dropout is None else input_dropout)
        self.dropout = drop(dropout)
        self.output_dropout = drop(dropout if output_dropout is None else output_dropout)
        self.weight_dropout = weight_dropout
        self.state_parts = STATE_PARTS[cell]
        self.state_size = max(sizes[1:])

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The top layer's state at every step (b t d) after dropout, and the last of all layers."""
        x, after = self.read(x, state)
        return self.output_dropout(x), after

    def read(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The same without dropout of the top layer."""
        *_, top, after = self.iterate_layers(x, state)
        return top, after

    def iterate_layers(self, x: Tensor, state: State) -> Iterator[Any]:
        """Yield the states of each layer at every step (b t d), then the last state of all."""
        states: list[State] = []
        for number, (layer, *parts) in enumerate(zip(self.layers, *state, strict=True)):
            if layer.training:  # layers that are frozen in fine-tuning have no dropout
                x = (self.dropout if number else self.input_dropout)(x)
            before = tuple(part[None, :, : layer.hidden_size].contiguous() for part in parts)
            x, after = self._run_layer(layer, x, before)
            states.append(tuple(self._pad(part[0]) for part in after))
            yield x
        yield tuple(torch.stack(parts) for parts in zip(*states, strict=True))

    def _pad(self, state: Tensor) -> Tensor:
        missing = self.state_size - state.shape[-1]
        return nn.functional.pad(state, (0, missing)) if missing else state

    def _run_layer(self, layer: nn.RNNBase, x: Tensor, before: State) -> tuple[Tensor, State]:
        single = self.state_parts == 1
        with drop_weights(layer, self.weight_dropout if layer.training else 0.0):
            x, after = layer(x, before[0] if single else before)
        return x, (after,) if single else after


@contextmanager
def drop_weights(layer: nn.RNNBase, p: float) -> Iterator[None]:
    """Within the context a layer computes with dropped hidden-to-hidden weights: DropConnect.

    hₜ = LSTM(xₜ, hₜ₋₁; M ⊙ U), with one mask M for all steps.  Merity et al. 2018, §2. The kept
    weights are scaled by 1/(1−p). The weights are copied into one flat tensor in cuDNN's order,
    which it then uses as it is.
    """
    if not p:
        yield
        return
    weights: list[Any] = layer._flat_weights  # what torch's forward reads
    inputs, recurrent, *biases = weights
    dropped = nn.functional.dropout(recurrent, p)
    flat = torch.cat([one.flatten() for one in (inputs, dropped, *biases)])
    parts = flat.split([one.numel() for one in weights])
    layer._flat_weights = [part.view_as(one) for part, one in zip(parts, weights, strict=True)]
    try:
        yield
    finally:
        layer._flat_weights = weights


class LockedDropout(nn.Module):
    """Dropout of the same elements of a row at every step."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p):
            return x
        return x * nn.functional.dropout(x.new_ones(len(x), 1, x.shape[-1]), self.p)  # b t d


def embed_with_dropout(table: nn.Embedding, ids: Tensor, p: float) -> Tensor:
    """The embeddings of ids, b t -> b t d, in training without some words.

    A word that is dropped is zero wherever it occurs in the batch (Gal and Ghahramani 2016).
    """
    vectors = table(ids)
    if not (table.training and p):
        return vectors
    keep = nn.functional.dropout(vectors.new_ones(table.num_embeddings), p)  # v
    return vectors * keep[ids][..., None]


@torch.no_grad()
def init_recurrent_weights(net: nn.Module, rng: torch.Generator) -> None:
    """Uniform up to 1/√d, biases 0; forget gates of LSTMs start open (Jozefowicz et al. 2015)."""
    for layer in net.modules():
        if not isinstance(layer, nn.RNNBase):
            continue
        bound = layer.hidden_size**-0.5
        for name, weight in layer.named_parameters():
            if "bias" in name:
                weight.zero_()
            else:
                weight.uniform_(-bound, bound, generator=rng)
            if isinstance(layer, nn.LSTM) and "bias_ih" in name:
                weight.chunk(4)[1].fill_(1.0)  # torch's order: input, forget, cell, output
