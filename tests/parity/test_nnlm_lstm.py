"""The NNLM against Bengio's equation in numpy, the LSTM against torch, step by step."""

import numpy as np
import pytest
import torch
from torch import nn

from cloze.decode.language import language_model
from languages import neural_model

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("variety", ["nnlm", "direct"])
def test_an_nnlm_equals_its_equation(variety):
    model = neural_model(variety)
    weights = {name: w.double().numpy() for name, w in model.module.state_dict().items()}
    context = [3, 7, 5]
    x = np.concatenate([weights["embeddings.weight"][word] for word in context])
    hidden = np.tanh(weights["hidden.bias"] + weights["hidden.weight"] @ x)
    y = weights["output.bias"] + weights["output.weight"] @ hidden
    if variety == "direct":
        y += weights["direct.weight"] @ x
    wanted = y - np.log(np.exp(y - y.max()).sum()) - y.max()
    assert np.allclose(
        language_model(model).next_log_probs([9, *context]), wanted, rtol=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("layers", [1, 3])
def test_an_lstm_equals_torch_step_by_step(layers):
    model = neural_model("lstm", num_layers=layers).module
    peer = nn.LSTM(8, 8, layers, batch_first=True)
    cells = [nn.LSTMCell(8, 8) for _ in range(layers)]
    with torch.no_grad():
        for number, layer in enumerate(model.rnn.layers):
            for name, weight in layer.named_parameters():
                getattr(peer, f"{name[:-1]}{number}").copy_(weight)
                getattr(cells[number], name[:-3]).copy_(weight)
    ids = torch.tensor([[3, 4, 5, 6, 7], [7, 6, 5, 4, 3]])
    vectors, state = model(ids, model.init_state(2))
    wanted, ends = peer(model.embeddings(ids))
    assert torch.allclose(vectors, wanted, atol=1e-6)
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(state, ends, strict=True))
    states = [(torch.zeros(2, 8), torch.zeros(2, 8)) for _ in range(layers)]
    for at in range(5):
        x = model.embeddings(ids[:, at])
        for number, cell in enumerate(cells):
            states[number] = cell(x, states[number])
            x = states[number][0]
        assert torch.allclose(vectors[:, at], x, atol=1e-6)
