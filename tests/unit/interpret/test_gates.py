"""Gates that are computed again give the hidden states of torch's layers."""

import pytest
import torch
from torch import nn

from cloze.interpret.gates import compute_gates
from cloze.interpret.recurrent import capture_gates, list_recurrent_layers
from cloze.models.build import build
from cloze.models.configs.elmo import ElmoConfig
from cloze.models.configs.seq2seq import Seq2SeqConfig
from cloze.models.configs.ulmfit import ULMFiTConfig
from cloze.nn.layout import Packed
from cloze.nn.projected_lstm import ProjectedLSTM
from cloze.nn.recurrent import NETS
from helpers import scramble

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


def random(*shape, dtype=torch.float64):
    rng = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cell", NETS)
@pytest.mark.parametrize("bias", [True, False])
def test_hidden_states_equal_those_of_torch(cell, bias, dtype):
    layer = scramble(NETS[cell](5, 7, batch_first=True, bias=bias)).to(dtype)
    x, state = random(2, 9, 5, dtype=dtype), random(2, 1, 2, 7, dtype=dtype)
    start = (state[0], state[1]) if cell == "lstm" else state[0]
    expected, last = layer(x, start)
    found = compute_gates(layer, x, tuple(state) if cell == "lstm" else (state[0],))
    torch.testing.assert_close(found.hidden, expected, rtol=0, atol=TOLERANCE[dtype])
    if cell == "lstm":
        torch.testing.assert_close(
            found.states["cell"][:, -1], last[1][0], rtol=0, atol=TOLERANCE[dtype]
        )


def test_the_equations_of_an_lstm_hold_between_its_gates():
    layer = scramble(nn.LSTM(4, 6, batch_first=True)).double()
    found = compute_gates(layer, random(1, 5, 4))
    cell, gates = found.states["cell"], found.gates
    assert list(gates) == ["input", "forget", "output"]
    before = torch.cat([torch.zeros(1, 1, 6), cell[:, :-1]], 1)
    expected = gates["forget"] * before + gates["input"] * found.states["candidate"]
    torch.testing.assert_close(cell, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.hidden, gates["output"] * cell.tanh(), rtol=0, atol=1e-12)
    assert all(gate.min() > 0 and gate.max() < 1 for gate in gates.values())


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_projection_and_clipping_are_those_of_elmo(clip):
    layer = ProjectedLSTM(4, 8, 3, cell_clip=clip, output_clip=clip)
    layer = scramble(layer, scale=1.0).double()
    x, state = random(2, 6, 4), (random(1, 2, 3), random(1, 2, 8))
    expected, (_, cell) = layer(x, state)
    found = compute_gates(layer, x, state)
    torch.testing.assert_close(found.hidden, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.states["cell"][:, -1], cell[0], rtol=0, atol=1e-12)
    if clip:
        assert found.states["cell"].abs().max() == clip


ELMO = {
    "vocab_size": 9,
    "filter_widths": (1, 2),
    "filter_counts": (4, 4),
    "projection_size": 3,
    "cell_size": 5,
    "num_highway_layers": 1,
    "char_embedding_size": 4,
}
MODELS = {
    "lstm": ULMFiTConfig(vocab_size=9, embedding_size=4, hidden_size=6, num_layers=2),
    "elmo": ElmoConfig(**ELMO),
    "seq2seq": Seq2SeqConfig(
        vocab_size=9, embedding_size=4, hidden_size=6, num_layers=2, cell="lstm", bidirectional=True
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_layers_of_a_model_are_captured_in_the_order_of_the_text(name):
    module = build(MODELS[name], (), rng=torch.Generator().manual_seed(0))
    module = scramble(module).double().eval()
    ids = torch.tensor([3, 4, 5, 6, 7])
    if name == "elmo":
        ids = torch.randint(1, 200, (5, 50), generator=torch.Generator().manual_seed(1))
    layers = list_recurrent_layers(module)
    with torch.no_grad(), capture_gates(layers) as captured:
        _, *hidden = module.hidden_states(ids, Packed.from_lengths([5]))
    assert len(captured) == len(layers) == (2 if name == "lstm" else 4)
    per_layer = len(layers) // 2
    below = torch.zeros(())
    for number, expected in enumerate(hidden):
        parts = captured[per_layer * number : per_layer * (number + 1)]
        found = torch.cat([part.hidden[0] for part in parts], -1)[: len(expected)]
        residual = below if name == "elmo" else 0  # ELMo adds the layer below
        torch.testing.assert_close(found + residual, expected, rtol=0, atol=1e-12)
        below = expected
    assert not any(layer.module._forward_hooks for layer in layers)
