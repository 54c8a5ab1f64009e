"""AWD-LSTM against a plain reference written from the equations of Merity et al. 2018."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from cloze.models.configs.lstm import LSTMConfig
from cloze.models.lstm import LSTM
from cloze.nn.recurrent import NETS, drop_weights
from cloze.objectives.language_model import regularize_activations
from helpers import scramble

CONFIG = LSTMConfig(
    vocab_size=13,
    bos_id=1,
    hidden_size=7,
    embedding_size=4,
    num_layers=3,
    dropout=0.3,
    input_dropout=0.4,
    output_dropout=0.2,
    embedding_dropout=0.1,
    weight_dropout=0.5,
)
ROWS, LENGTH = 3, 6


@pytest.fixture
def model():
    return scramble(LSTM(CONFIG).double(), seed=3, scale=0.5)


def lstm_step(weights, x, h, c, mask):
    """(i, f, g, o) = W·x + (M ⊙ U)·h + b, c' = f·c + i·g, h' = o·tanh(c'): §2, eqs. of the LSTM."""
    w, u, b, d = weights
    i, f, g, o = (x @ w.T + h @ (u * mask).T + b + d).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def read_plainly(model, ids, masks):
    """The last layer at each token, token by token, with given masks for everything dropped."""
    table, out = model.embeddings.weight, []
    sizes = [layer.hidden_size for layer in model.rnn.layers]
    h = [torch.zeros(len(ids), size, dtype=table.dtype) for size in sizes]
    c = [one.clone() for one in h]
    for t in range(ids.shape[1]):
        x = table[ids[:, t]] * masks["words"][ids[:, t]][:, None]
        for number, layer in enumerate(model.rnn.layers):
            x = x * masks["inputs"][number]
            weights = [getattr(layer, name) for name in layer._flat_weights_names]
            h[number], c[number] = lstm_step(
                weights, x, h[number], c[number], masks["weights"][number]
            )
            x = h[number]
        out.append(x)
    return torch.stack(out, 1)


def draw_masks(model, seed):
    """The masks in the order in which the model draws them."""
    torch.manual_seed(seed)
    one = torch.ones((), dtype=torch.float64)
    masks = {
        "words": F.dropout(one.expand(CONFIG.vocab_size).clone(), 0.1),
        "inputs": [],
        "weights": [],
    }
    for number, layer in enumerate(model.rnn.layers):
        size, p = layer.input_size, 0.3 if number else 0.4
        masks["inputs"].append(F.dropout(one.expand(ROWS, 1, size).clone(), p)[:, 0])
        masks["weights"].append(F.dropout(torch.ones_like(layer.weight_hh_l0), 0.5))
    masks["output"] = F.dropout(one.expand(ROWS, 1, CONFIG.embedding_size).clone(), 0.2)
    return masks


@pytest.mark.parametrize("length", [1, LENGTH])
def test_equals_the_equations_with_the_same_masks(model, length):
    ids = torch.randint(0, 13, (ROWS, length), generator=torch.Generator().manual_seed(0))
    model.train()
    with torch.no_grad():
        masks = draw_masks(model, seed=5)
        torch.manual_seed(5)
        found, _ = model(ids, model.init_state(ROWS))
        torch.testing.assert_close(found, read_plainly(model, ids, masks) * masks["output"])
        ones = {
            "words": torch.ones(13),
            "inputs": [torch.ones(1)] * 3,
            "weights": [torch.ones(1)] * 3,
        }
        model.eval()
        found, _ = model(ids, model.init_state(ROWS))
        torch.testing.assert_close(found, read_plainly(model, ids, ones))


def test_a_text_in_slices_is_the_text(model):
    ids = torch.randint(0, 13, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    model.eval()
    whole, end = model(ids, model.init_state(ROWS))
    first, state = model(ids[:, :4], model.init_state(ROWS))
    second, state = model(ids[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(state, end)


def test_the_last_layer_has_the_size_of_the_tied_embeddings(model):
    sizes = [(layer.input_size, layer.hidden_size) for layer in model.rnn.layers]
    assert sizes == [(4, 7), (7, 7), (7, 4)]
    untied = LSTM(LSTMConfig(vocab_size=13, hidden_size=7, embedding_size=4, tie_embeddings=False))
    assert untied.output.weight.shape == (13, 7)


@pytest.mark.parametrize("cell", NETS)
def test_dropped_weights_are_scaled_and_get_no_gradient(cell):
    torch.manual_seed(0)
    layer = NETS[cell](5, 60, batch_first=True)
    x = torch.randn(2, 3, 5)
    before = layer(x)[0]
    with drop_weights(layer, 0.5):
        dropped = layer._flat_weights[1].detach().clone()
        layer(x)[0].square().sum().backward()
    assert torch.equal(layer(x)[0], before)  # the weights themselves are as they were
    kept = dropped != 0
    assert abs(kept.float().mean() - 0.5) < 0.02
    torch.testing.assert_close(dropped[kept], 2 * layer.weight_hh_l0[kept])
    gradient = layer.weight_hh_l0.grad
    assert not gradient[~kept].any()
    assert gradient[kept].any()
    assert layer.weight_ih_l0.grad.any()
    assert layer.bias_hh_l0.grad.any()


def test_a_dropped_word_is_dropped_wherever_it_occurs():
    config = LSTMConfig(vocab_size=50, hidden_size=8, embedding_dropout=0.5)
    model = LSTM(config).train()
    seen = []
    model.rnn.input_dropout.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    ids = torch.arange(50).repeat(2, 2)
    model(ids, model.init_state(2))
    zero = (seen[0] == 0).all(-1)  # 2 100
    assert torch.equal(zero[:, :50], zero[:, 50:])
    assert torch.equal(zero[0], zero[1])
    assert 10 < zero[0, :50].sum() < 40


def test_activation_regularisation():
    raw = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    dropped = raw * torch.tensor([0.0, 2.0, 2.0])
    mean_square = sum(float(v) ** 2 for v in dropped.flatten()) / dropped.numel()
    steps = [float(d) ** 2 for row in raw for u, v in pairwise(row) for d in u - v]
    found = regularize_activations(dropped, raw, 2.0, 1.0)
    assert found.item() == pytest.approx(10 * (2 * mean_square + sum(steps) / len(steps)), rel=1e-5)
    assert regularize_activations(dropped[:, :1], raw[:, :1], 0.0, 1.0) == 0
