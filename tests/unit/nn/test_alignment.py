"""Attention scores, sinusoids and recurrent networks."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cloze.errors import ConfigError
from cloze.nn.alignment import (
    SCORES,
    AdditiveScore,
    CosineScore,
    DotScore,
    GeneralScore,
    compute_alignment,
    compute_context,
)
from cloze.nn.attention import Attention, compute_attention_weights
from cloze.nn.context import AttentionContext
from cloze.nn.layout import causal_mask
from cloze.nn.positions import LearnedPositions, SinusoidalPositions, compute_sinusoids
from cloze.nn.recurrent import NETS, Bridge, RecurrentEncoder, StackedCells
from helpers import raises

WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@pytest.mark.parametrize(
    ("a", "third"), [(1.0, 0.5761168847658291), (10.0, 0.9999092083843412), (100.0, 1.0)]
)
def test_the_gradient_of_softmax_by_hand(a, third):
    """The larger the scores, the harder the softmax, and the smaller its gradient."""
    x = torch.tensor([a, a, 2 * a], dtype=torch.float64, requires_grad=True)
    y = x.softmax(-1)
    assert y[2].item() == pytest.approx(third, abs=1e-15)
    y[2].backward()
    assert x.grad[2].item() == pytest.approx(third * (1 - third), abs=1e-15)


@pytest.mark.parametrize(
    ("a", "third"), [(1.0, 0.5761168847658291), (10.0, 0.9999092083843412), (100.0, 1.0)]
)
def test_the_softmax_example_computed_by_the_attention_layer(a, third):
    """A query that scores three keys a, a, 2a; the values are one-hot, so the output is softmax."""
    layer = Attention(4, 1).double()
    with torch.no_grad():
        q, k, v = layer.qkv.weight.chunk(3)
        for part in (q, k, v, layer.qkv.bias, layer.out.bias):
            part.zero_()
        q[0, 3] = 2.0  # √d: the layer divides by it
        k[0, 0] = k[0, 1] = a
        k[0, 2] = 2 * a
        v.copy_(torch.eye(4))
        layer.out.weight.copy_(torch.eye(4))
    x = torch.eye(4, dtype=torch.float64)[None, :3].clone()
    x[..., 3] = 1.0  # every token asks the same
    x.requires_grad_(True)
    context = AttentionContext(None, max_seqlen=3, device=x.device)
    y = layer(x, context)[0, 0, :3]
    assert y.tolist() == pytest.approx([(1 - third) / 2, (1 - third) / 2, third], abs=1e-12)
    (slope,) = torch.autograd.grad(y[2], layer.qkv.weight)
    key = slope.chunk(3)[1][0, 2].item()  # ∂y₃/∂(score of the third key)
    assert key == pytest.approx(third * (1 - third), abs=1e-12), "it vanishes as a grows"


def test_gradients_of_the_softmax_vanish():
    def slope(a):
        x = torch.tensor([a, a, 2 * a], dtype=torch.float64, requires_grad=True)
        x.softmax(-1)[2].backward()
        return x.grad.abs().max().item()

    assert slope(1.0) > 0.2
    assert slope(10.0) < 1e-4
    assert slope(100.0) < 1e-40


@pytest.mark.parametrize("width", [4, 64, 256])
def test_the_variance_of_a_dot_product_is_the_width(width):
    rng = torch.Generator().manual_seed(0)
    q, k = (torch.randn(40_000, width, generator=rng) for _ in range(2))
    assert (q * k).sum(1).var().item() == pytest.approx(width, rel=0.05)
    scores = compute_attention_weights(q[:, None], k[:, None], None)  # one key: all weight is on it
    assert torch.equal(scores, torch.ones_like(scores))
    assert ((q / width**0.5) * k).sum(1).var().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("shift", [1, 7, 50])
def test_shifted_sinusoids_are_a_linear_map(layout, shift):
    """PE(pos + k) = M_k·PE(pos) with one M_k for all places: turned by k·ω in each pair."""
    table = compute_sinusoids(200, 16, layout).double().numpy()
    half, paper = np.arange(8), layout == "interleaved"
    sines, cosines = (2 * half, 2 * half + 1) if paper else (half, half + 8)
    turn = shift * 10000.0 ** -(half / 8 if paper else half / 7)
    matrix = np.zeros((16, 16))
    matrix[sines, sines] = matrix[cosines, cosines] = np.cos(turn)
    matrix[sines, cosines], matrix[cosines, sines] = np.sin(turn), -np.sin(turn)
    np.testing.assert_allclose(table[:-shift] @ matrix.T, table[shift:], atol=1e-6)


def test_both_layouts_of_sinusoids():
    paper, halves = compute_sinusoids(50, 8), compute_sinusoids(50, 8, "halves")
    place = torch.arange(50.0)
    torch.testing.assert_close(paper[:, 0], place.sin())
    torch.testing.assert_close(paper[:, 1], place.cos())
    torch.testing.assert_close(paper[:, 3], (place / 10000 ** (2 / 8)).cos())
    torch.testing.assert_close(halves[:, 0], place.sin())
    torch.testing.assert_close(halves[:, 4], place.cos())
    torch.testing.assert_close(halves[:, 3], (place / 10000).sin())
    with raises(ConfigError, "thirds"):
        compute_sinusoids(5, 8, "thirds")


def test_sinusoids_of_any_position():
    waves = SinusoidalPositions(8)
    assert torch.equal(waves(torch.tensor([300]), 301)[0], compute_sinusoids(301, 8)[300])
    assert torch.equal(waves(torch.tensor([2]), 3)[0], compute_sinusoids(3, 8)[2])
    assert list(waves.parameters()) == []
    with torch.inference_mode():
        assert waves(torch.tensor([500]), 501).is_inference()
    assert not waves(torch.tensor([500]), 501).is_inference()
    assert LearnedPositions(5, 8)(torch.arange(5), 5).shape == (5, 8)


def test_a_causal_mask_by_hand():
    """`must` sees `robot` and itself, and nothing after: 48 % and 52 %; −∞ above the diagonal."""
    words = ["robot", "must", "obey", "orders"]
    scores = torch.tensor(
        [
            [0.11, 0.00, 0.81, 0.79],
            [0.19, 0.50, 0.30, 0.48],
            [0.53, 0.98, 0.95, 0.14],
            [0.81, 0.86, 0.38, 0.90],
        ],
        dtype=torch.float64,
    )
    weights = scores.masked_fill(~causal_mask(4), -torch.inf).softmax(-1)
    assert [round(100 * x) for x in weights[0].tolist()] == [100, 0, 0, 0]
    robot, must, *later = weights[words.index("must")].tolist()
    assert later == [0.0, 0.0]
    assert robot + must == pytest.approx(1.0)
    # with a difference of log(52/48) in the scores the shares are those of the picture
    query = torch.tensor([[1.0, 0.0]], dtype=torch.float64) * 2**0.5
    keys = torch.tensor(
        [[0.0, 0.0], [float(np.log(52 / 48)), 0.0], [9.0, 0.0], [9.0, 0.0]], dtype=torch.float64
    )
    (shares,) = compute_attention_weights(query, keys, causal_mask(4)[1]).tolist()
    assert shares == pytest.approx([0.48, 0.52, 0.0, 0.0])


def test_alignment_and_context_by_hand():
    """汤姆 = 0.6·Tom + 0.2·chase + 0.2·Jerry: weights from scores, and what they take."""
    memory = torch.eye(3, dtype=torch.float64)[None]  # Tom, chase, Jerry
    real = torch.ones(1, 3, dtype=torch.bool)
    for told in ((0.6, 0.2, 0.2), (0.3, 0.2, 0.5)):
        weights = compute_alignment(torch.tensor([told], dtype=torch.float64).log(), real)
        assert compute_context(weights, memory)[0].tolist() == pytest.approx(told)


@torch.no_grad()
def test_attention_scores_by_their_equations():
    rng = torch.Generator().manual_seed(0)
    query, memory = torch.randn(2, 6, generator=rng), torch.randn(2, 4, 6, generator=rng)
    made = {name: score(6) for name, score in SCORES.items()}
    found = {name: score(query, score.project_keys(memory)) for name, score in made.items()}
    one, other = query[1], memory[1, 2]
    concat, general = made["concat"], made["general"]
    side_by_side = torch.cat([concat.state.weight, concat.source.weight], 1)
    expected = {
        "dot": one @ other,
        "general": one @ general.dense.weight @ other,
        "concat": concat.score.weight @ torch.tanh(side_by_side @ torch.cat([one, other])),
        "cosine": 10 * torch.cosine_similarity(one, other, dim=0),
    }
    for name, value in expected.items():
        assert found[name][1, 2].item() == pytest.approx(value.item(), rel=1e-5, abs=1e-6)
    kinds = [type(score) for score in made.values()]
    assert kinds == [DotScore, GeneralScore, AdditiveScore, CosineScore]


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
@torch.no_grad()
def test_stacked_cells_equal_the_networks_of_torch(kind):
    net = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[kind](5, 8, 2, batch_first=True)
    cells = StackedCells(kind, 5, 8, num_layers=2, dropout=0.0)
    for number, cell in enumerate(cells.cells):
        for name, weight in cell.named_parameters():
            weight.copy_(getattr(net, f"{name}_l{number}"))
    x = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    expected, _ = net(x)
    state = tuple(torch.zeros(2, 3, 8) for _ in range(cells.state_parts))
    for at in range(4):
        top, state = cells(x[:, at], state)
        torch.testing.assert_close(top, expected[:, at])


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
@torch.no_grad()
def test_the_encoder_reads_both_directions_without_padding(kind):
    encoder = RecurrentEncoder(kind, 5, 8, num_layers=2, bidirectional=True, dropout=0.0)
    x = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    memory, ends = encoder(x, torch.tensor([6, 4]))
    assert (memory.shape, ends.shape) == ((2, 6, 8), (2, 2, 8))
    short, others = encoder(x[1:, :4], torch.tensor([4]))
    torch.testing.assert_close(memory[1:, :4], short)
    torch.testing.assert_close(ends[:, 1:], others)
    # forwards the last state is that of the last token, backwards that of the first
    torch.testing.assert_close(ends[1, 0, :4], memory[0, 5, :4])
    torch.testing.assert_close(ends[1, 0, 4:], memory[0, 0, 4:])
    assert [part.shape for part in Bridge(8, 2)(ends)] == [(2, 2, 8)] * 2
    with raises(ConfigError, "7"):
        RecurrentEncoder(kind, 5, 7, num_layers=1, bidirectional=True, dropout=0.0)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_the_encoder_equals_torchs_packed_sequences(kind):
    encoder = RecurrentEncoder(kind, 5, 8, num_layers=2, bidirectional=True, dropout=0.0).double()
    net = NETS[kind](5, 4, 2, batch_first=True, bidirectional=True).double()
    for (number, layer), way in product(enumerate(encoder.layers), (0, 1)):
        ending = f"_l{number}" + "_reverse" * way
        names = {f"{name}_l0": f"{name}{ending}" for name in WEIGHTS}
        layer[way].load_state_dict({one: getattr(net, other) for one, other in names.items()})
    x = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lengths = torch.tensor([6, 4, 1, 5])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, last = net(packed)
    expected, _ = pad_packed_sequence(states, batch_first=True)
    hidden = last[0] if kind == "lstm" else last
    memory, ends = encoder(x, lengths)
    real = (torch.arange(6) < lengths[:, None])[..., None]
    torch.testing.assert_close(memory * real, expected, rtol=0.0, atol=1e-12)
    joined = hidden.unflatten(0, (2, 2)).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(ends, joined, rtol=0.0, atol=1e-12)
    (memory * real).square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(
        encoder.layers[0][1].weight_hh_l0.grad, net.weight_hh_l0_reverse.grad
    )


def test_gradients_vanish_in_an_rnn_and_less_in_an_lstm():
    """How much the last state feels the first word, by the number of steps between them."""

    def felt(kind, steps):
        torch.manual_seed(0)
        net = {"rnn": nn.RNN, "lstm": nn.LSTM}[kind](8, 32, batch_first=True)
        if kind == "lstm":
            with torch.no_grad():
                net.bias_ih_l0[32:64].fill_(1.0)  # the forget gate begins open
        x = torch.randn(1, steps, 8, requires_grad=True)
        net(x)[0][0, -1].sum().backward()
        return x.grad[0, 0].norm().item() / x.grad[0, -1].norm().item()

    with torch.random.fork_rng():
        assert felt("rnn", 40) < 1e-8
        assert felt("lstm", 40) > 1e3 * felt("rnn", 40)
        assert felt("lstm", 80) < felt("lstm", 40)  # eased, not gone
