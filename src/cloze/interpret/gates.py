"""The gates and cell states of recurrent layers, computed again from their weights.

torch's layers return hidden states only. b rows, t tokens, h units, p width of a projection.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cloze.nn.projected_lstm import ProjectedLSTM


@dataclass(frozen=True, kw_only=True, eq=False)
class Gates:
    """What a recurrent layer computes at each token: gates and states by name, b t h each.

    An LSTM has the gates `input`, `forget` and `output` and the states `candidate` and `cell`; a
    GRU the gates `reset` and `update` and the state `candidate`; a plain RNN has neither.
    """

    gates: Mapping[str, Tensor]  # from 0 to 1
    states: Mapping[str, Tensor]  # any number
    hidden: Tensor  # b t h, or b t p: the output of the layer

    def flip(self) -> "Gates":
        """The same in the opposite order of tokens."""
        return Gates(
            gates={name: gate.flip(1) for name, gate in self.gates.items()},
            states={name: state.flip(1) for name, state in self.states.items()},
            hidden=self.hidden.flip(1),
        )


@torch.no_grad()
def compute_gates(layer: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...] = ()) -> Gates:
    """The gates of a layer of one direction that reads x (b t d) from a state (1 b h each).

    i, f, o = σ(W·x + U·h + b);  g = tanh(W·x + U·h + b);  c = f·c + i·g;  h = o·tanh(c).
    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000. The clipping and the
    projection of a `ProjectedLSTM` are applied. GRU: Cho et al. 2014, as torch computes it.
    """
    kind = {"LSTM": _run_lstm, "GRU": _run_gru}.get(layer.mode, _run_rnn)
    if not state:
        sizes = (layer.proj_size or layer.hidden_size, layer.hidden_size)
        state = tuple(x.new_zeros(1, len(x), size) for size in sizes)
    steps = list(kind(layer, x, [part[0] for part in state]))
    columns = [
        {name: torch.stack([step[part][name] for step in steps], 1) for name in steps[0][part]}
        for part in range(3)
    ]
    return Gates(gates=columns[0], states=columns[1], hidden=columns[2]["hidden"])


_Step = tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]  # gates, states, output


def _project_inputs(layer: Any, x: Tensor) -> Iterator[Tensor]:  # noqa: ANN401
    """W·x + b of each token (b 4h), which does not depend on the step before."""
    bias = layer.bias_ih_l0 if layer.bias else None
    yield from nn.functional.linear(x, layer.weight_ih_l0, bias).unbind(1)


def _project_hidden(layer: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    return nn.functional.linear(
        hidden, layer.weight_hh_l0, layer.bias_hh_l0 if layer.bias else None
    )


def _run_lstm(layer: Any, x: Tensor, state: list[Tensor]) -> Iterator[_Step]:  # noqa: ANN401
    hidden, cell = state
    is_ours = isinstance(layer, ProjectedLSTM)
    for inputs in _project_inputs(layer, x):
        i, f, g, o = (inputs + _project_hidden(layer, hidden)).chunk(4, -1)  # torch's order
        gates = {"input": i.sigmoid(), "forget": f.sigmoid(), "output": o.sigmoid()}
        candidate = g.tanh()
        cell = gates["forget"] * cell + gates["input"] * candidate
        if is_ours and layer.cell_clip:
            cell = cell.clamp(-layer.cell_clip, layer.cell_clip)
        hidden = gates["output"] * cell.tanh()
        if layer.proj_size:
            hidden = nn.functional.linear(hidden, layer.weight_hr_l0)
        if is_ours and layer.output_clip:
            hidden = hidden.clamp(-layer.output_clip, layer.output_clip)
        yield gates, {"candidate": candidate, "cell": cell}, {"hidden": hidden}


def _run_gru(layer: Any, x: Tensor, state: list[Tensor]) -> Iterator[_Step]:  # noqa: ANN401
    hidden = state[0]
    for inputs in _project_inputs(layer, x):
        (r, z, n), (hr, hz, hn) = inputs.chunk(3, -1), _project_hidden(layer, hidden).chunk(3, -1)
        gates = {"reset": (r + hr).sigmoid(), "update": (z + hz).sigmoid()}
        candidate = (n + gates["reset"] * hn).tanh()
        hidden = (1 - gates["update"]) * candidate + gates["update"] * hidden
        yield gates, {"candidate": candidate}, {"hidden": hidden}


def _run_rnn(layer: Any, x: Tensor, state: list[Tensor]) -> Iterator[_Step]:  # noqa: ANN401
    hidden = state[0]
    activation = torch.relu if layer.mode == "RNN_RELU" else torch.tanh
    for inputs in _project_inputs(layer, x):
        hidden = activation(inputs + _project_hidden(layer, hidden))
        yield {}, {}, {"hidden": hidden}
