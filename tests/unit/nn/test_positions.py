"""Positions, windows, gated feed-forward networks and pre-norm blocks."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cloze.nn.attention import Attention, RotaryAttention
from cloze.nn.block import GatedFeedForward, PreNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.layout import Packed, apply_sliding_window, expand_mask, window_mask
from cloze.nn.positions import (
    ROPE_THETA,
    apply_rotary,
    compute_rotary_table,
    compute_sinusoids,
)

CPU = torch.device("cpu")


def context_of(length, mask=None):
    return AttentionContext(mask, max_seqlen=length, device=CPU)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_shift_of_sinusoids_is_linear():
    """PE(pos+k) is a rotation of PE(pos), the same for every pos (Vaswani et al. 2017, §3.5)."""
    table = compute_sinusoids(50, 16).double()
    here, there = table[:40], table[7:47]
    matrix = torch.linalg.lstsq(here, there).solution
    assert (here @ matrix - there).abs().max() < 1e-4


def test_rotary_positions_rotate_complex_numbers():
    """The same by Euler: (a + bi)·exp(im·theta^(−2i/d))."""
    x, width = random(7, 2, 6), 6
    angle = torch.arange(7.0)[:, None, None] * 500 ** (-torch.arange(0, width, 2.0) / width)
    rotated = torch.complex(x[..., :3], x[..., 3:]) * torch.polar(torch.ones(1), angle)
    ours = apply_rotary(x, compute_rotary_table(7, width, theta=500.0))
    torch.testing.assert_close(ours, torch.cat([rotated.real, rotated.imag], -1))
    assert torch.equal(ours[0], x[0])  # position 0 is not rotated


def test_the_result_has_the_dtype_of_the_input():
    table = compute_rotary_table(4, 8)
    assert table.cos.dtype == torch.float32
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert apply_rotary(random(4, 1, 8).to(dtype), table).dtype == dtype
    # a bfloat16 model is rotated by exact angles: only the result is rounded
    exact = apply_rotary(random(4, 1, 8).bfloat16().float(), table)
    assert torch.equal(apply_rotary(random(4, 1, 8).bfloat16(), table), exact.bfloat16())


def test_positions_are_selected_from_a_table():
    table, positions = compute_rotary_table(9, 4, theta=ROPE_THETA), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(table.select(positions).sin[3:], table.sin[:2])


def test_rotary_attention_depends_on_distances_only(monkeypatch):
    attention = RotaryAttention(16, 2, bias=False, rope_theta=ROPE_THETA).eval()
    x, table = random(1, 5, 16), compute_rotary_table(40, 8)

    def weights(positions):
        selected = table.select(positions)
        monkeypatch.setattr(AttentionContext, "rotary_table", lambda *_, **__: selected)
        return attention.weights(x, context_of(5))

    here, there = weights(torch.arange(5)), weights(torch.arange(30, 35))
    apart = weights(torch.arange(0, 10, 2))
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-6)
    assert (here - apart).abs().max() > 1e-3


def test_masks_and_tables_are_computed_once():
    layers = [
        RotaryAttention(16, 2, rope_theta=theta, window_size=window)
        for theta, window in ((160_000.0, None), (ROPE_THETA, 4), (ROPE_THETA, 4))
    ]
    context = context_of(9, torch.ones(2, 9))
    for layer in layers:
        layer.prepare(context)
    assert context.attn_mask(4) is context.attn_mask(4)
    assert context.attn_mask(None) is context.layout
    assert layers[1].rotary_table(context) is layers[2].rotary_table(context)
    assert layers[0].rotary_table(context) is not layers[1].rotary_table(context)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_plain_layer_reads_no_rotary_table(layout, monkeypatch):
    monkeypatch.delattr(AttentionContext, "rotary_table")
    mask = Packed.from_lengths([5, 5]) if layout == "packed" else None
    x = random(10, 8) if layout == "packed" else random(2, 5, 8)
    context = context_of(5, mask)
    attention = Attention(8, 2)
    attention.prepare(context)
    assert attention(x, context).shape == x.shape


def test_attention_without_a_bias():
    attention = Attention(8, 2, bias=False)
    assert attention.qkv.bias is None
    assert attention.out.bias is None


def test_a_window_is_inclusive_on_both_sides():
    assert window_mask(5, 1).int().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1],
    ]


def test_a_window_within_a_mask():
    mask = torch.tensor([[1, 1, 1, 0, 0, 0]])
    windowed = apply_sliding_window(expand_mask(mask), 1, 6, CPU)
    assert windowed[0, 0].int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        *[[1, 1, 1, 0, 0, 0]] * 3,  # padding must attend to something, or it is NaN
    ]
    full = torch.ones(1, 6, 6)
    windowed = apply_sliding_window(expand_mask(full), 2, 6, CPU)
    assert torch.equal(windowed[0, 0], window_mask(6, 2))
    assert torch.equal(apply_sliding_window(None, 2, 6, CPU), window_mask(6, 2))
    # a window that shows everything needs no other mask
    same = expand_mask(mask)
    assert apply_sliding_window(same, 5, 6, CPU) is same
    assert apply_sliding_window(None, 5, 6, CPU) is None


def test_a_window_within_a_packed_row():
    context = context_of(5, Packed.from_lengths([2, 5]))
    assert context.run_mask(5, 8) is None
    assert context.run_mask(2, 2) is None
    assert torch.equal(context.run_mask(5, 2), window_mask(5, 1))


def test_the_mask_of_a_flat_row_separates_sequences():
    mask = context_of(3, Packed.from_lengths([2, 3])).attn_mask(2)
    assert torch.equal(mask, torch.block_diag(window_mask(2, 1), window_mask(3, 1)).bool())


def test_long_padding_with_a_window_gives_no_nan():
    """A query that sees nothing is NaN, and as a value it would spoil every other token."""
    attention = Attention(8, 2, window_size=2).eval()
    context = context_of(10, torch.tensor([[1, 1] + [0] * 8]))
    assert attention(random(1, 10, 8), context).isfinite().all()


def test_the_first_half_is_activated_and_the_second_gates():
    net = GatedFeedForward(4, 3, F.silu, bias=False)
    x = random(2, 4)
    upper, lower = net.up.weight[:3], net.up.weight[3:]
    expected = (F.silu(x @ upper.T) * (x @ lower.T)) @ net.down.weight.T
    torch.testing.assert_close(net(x), expected)
    assert net.up.bias is None


def test_dropout_of_a_gated_network_is_before_the_down_projection():
    net = GatedFeedForward(4, 3, F.gelu, dropout=1.0)
    assert torch.equal(net.train()(random(2, 4)), net.down.bias.expand(2, 4))
    assert not torch.equal(net.eval()(random(2, 4)), net.down.bias.expand(2, 4))


@pytest.mark.parametrize("normed", [True, False])
def test_a_pre_norm_block_adds_to_its_input(normed):
    attention, net = Attention(8, 2), GatedFeedForward(8, 4, F.gelu)
    first = nn.LayerNorm(8) if normed else nn.Identity()
    block = PreNormBlock(
        attention,
        net,
        attention_norm=first,
        ffn_norm=nn.LayerNorm(8),
        dropout=0.0,
        ffn_dropout=0.0,
    )
    x, context = 3 + random(1, 5, 8), context_of(5)
    middle = x + attention(F.layer_norm(x, (8,)) if normed else x, context)
    torch.testing.assert_close(block(x, context), middle + net(F.layer_norm(middle, (8,))))
    with torch.no_grad():
        attention.out.weight.zero_(), attention.out.bias.zero_()
        net.down.weight.zero_(), net.down.bias.zero_()
    assert torch.equal(block(x, context), x)
