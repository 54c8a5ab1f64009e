"""Rotary positions, windows, gated nets and pre-norm blocks by themselves."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cloze.nn.attention import Attention
from cloze.nn.blocks import GatedFeedForward, PreNormBlock
from cloze.nn.masks import allowed_by, near
from cloze.nn.packed import Packed, band
from cloze.nn.rotary import THETA, rotate, turn_of


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_turn_is_a_rotation_of_complex_numbers():
    """The same by Euler: (a + bi)·exp(im·theta^(−2i/d))."""
    x, width = random(7, 2, 6), 6
    angle = torch.arange(7.0)[:, None, None] * 500 ** (-torch.arange(0, width, 2.0) / width)
    turned = torch.complex(x[..., :3], x[..., 3:]) * torch.polar(torch.ones(1), angle)
    ours = rotate(x, turn_of(7, width, theta=500.0))
    torch.testing.assert_close(ours, torch.cat([turned.real, turned.imag], -1))
    assert torch.equal(ours[0], x[0])  # place 0 is not turned


def test_a_turn_keeps_the_precision_of_what_it_turns():
    turn = turn_of(4, 8)
    assert turn.cos.dtype == torch.float32
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert rotate(random(4, 1, 8).to(dtype), turn).dtype == dtype
    # a bfloat16 model is turned by exact angles: only the result is rounded
    exact = rotate(random(4, 1, 8).bfloat16().float(), turn)
    assert torch.equal(rotate(random(4, 1, 8).bfloat16(), turn), exact.bfloat16())


def test_places_are_looked_up_in_a_row():
    turn, places = turn_of(9, 4, theta=THETA), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(turn.at(places).sin[3:], turn.sin[:2])


def test_attention_sees_distances_and_not_places():
    attention = Attention(16, 2, bias=False).eval()
    x, turn = random(1, 5, 16), turn_of(40, 8)
    here = attention.weights(x, None, turn.at(torch.arange(5)))
    there = attention.weights(x, None, turn.at(torch.arange(30, 35)))
    apart = attention.weights(x, None, turn.at(torch.arange(0, 10, 2)))
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-6)
    assert (here - apart).abs().max() > 1e-3


def test_without_a_bias_there_is_none():
    attention = Attention(8, 2, bias=False)
    assert attention.qkv.bias is None
    assert attention.out.bias is None


def test_a_window_is_inclusive_on_both_sides():
    assert band(5, 1).int().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1],
    ]


def test_a_window_within_a_mask():
    device = torch.device("cpu")
    mask = torch.tensor([[1, 1, 1, 0, 0, 0]])
    allowed = near(allowed_by(mask), 1, 6, device)
    assert allowed[0, 0].int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        *[[1, 1, 1, 0, 0, 0]] * 3,  # padding must see something, or it is NaN
    ]
    full = torch.ones(1, 6, 6)
    assert torch.equal(near(allowed_by(full), 2, 6, device)[0, 0], band(6, 2))
    assert torch.equal(near(None, 2, 6, device), band(6, 2))
    # who is never further away than the window needs no other mask
    same = allowed_by(mask)
    assert near(same, 5, 6, device) is same
    assert near(None, 5, 6, device) is None


def test_a_window_within_a_packed_row():
    packed = Packed.of([2, 5])
    assert near(packed, 4, 5, torch.device("cpu")) is packed
    assert packed.allowed(5) is None
    close = near(packed, 1, 5, torch.device("cpu"))
    assert close.lengths == packed.lengths
    assert close.allowed(2) is None
    assert torch.equal(close.allowed(5), band(5, 1))


def test_long_padding_beside_a_window_is_no_nan():
    """A query that sees nothing is NaN, and as a value it would spoil every other token."""
    attention = Attention(8, 2).eval()
    mask = allowed_by(torch.tensor([[1, 1] + [0] * 8]))
    assert attention(random(1, 10, 8), near(mask, 1, 10, torch.device("cpu"))).isfinite().all()


def test_the_first_half_is_activated_and_the_second_gates():
    net = GatedFeedForward(4, 3, F.silu, bias=False)
    x = random(2, 4)
    upper, lower = net.inner.weight[:3], net.inner.weight[3:]
    expected = (F.silu(x @ upper.T) * (x @ lower.T)) @ net.outer.weight.T
    torch.testing.assert_close(net(x), expected)
    assert net.inner.bias is None


def test_dropout_of_a_gated_net_is_on_its_inner_numbers():
    net = GatedFeedForward(4, 3, F.gelu, dropout=1.0)
    assert torch.equal(net.train()(random(2, 4)), net.outer.bias.expand(2, 4))
    assert not torch.equal(net.eval()(random(2, 4)), net.outer.bias.expand(2, 4))


@pytest.mark.parametrize("normed", [True, False])
def test_a_pre_norm_block_adds_to_what_comes_in(normed):
    attention, net = Attention(8, 2), GatedFeedForward(8, 4, F.gelu)
    first = nn.LayerNorm(8) if normed else nn.Identity()
    block = PreNormBlock(
        attention, net, attention_norm=first, feed_forward_norm=nn.LayerNorm(8), dropout=0.0
    )
    x = 3 + random(1, 5, 8)
    middle = x + attention(F.layer_norm(x, (8,)) if normed else x)
    torch.testing.assert_close(block(x), middle + net(F.layer_norm(middle, (8,))))
    with torch.no_grad():
        attention.out.weight.zero_(), attention.out.bias.zero_()
        net.outer.weight.zero_(), net.outer.bias.zero_()
    assert torch.equal(block(x), x)
