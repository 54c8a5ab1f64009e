"""Dropout: probability, scale, gradient, random generator."""

import pytest
import torch
from scipy.stats import binom

from cloze.nn.attention import Attention
from cloze.nn.context import AttentionContext
from cloze.nn.layers import Dropout, dropout
from cloze.nn.layout import Packed

SURE = 1e-9  # of a false alarm


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(200, 301), (7,), (3, 5, 1001)])
def test_probability_and_scale(share, shape):
    torch.manual_seed(0)
    out = dropout(torch.ones(shape), share, training=True)
    kept = out[out != 0]
    low, high = binom.interval(1 - SURE, out.numel(), 1 - share)
    assert low <= len(kept) <= high
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - share)), rtol=1e-4)


def test_neighbouring_elements_are_dropped_independently():
    torch.manual_seed(0)
    dropped = dropout(torch.ones(400_000), 0.5, training=True) == 0
    for step in range(1, 9):  # four numbers share a random word
        both = (dropped[:-step] & dropped[step:]).sum().item()
        low, high = binom.interval(1 - SURE, len(dropped) - step, 0.25)
        assert low - 1000 <= both <= high + 1000  # overlapping pairs vary a little more


def test_the_gradient_has_the_same_mask():
    torch.manual_seed(0)
    x = torch.randn(50, 40, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.3, training=True)
    out.sum().backward()
    assert torch.equal(x.grad == 0, out == 0)
    assert torch.allclose(x * x.grad, out)


def test_no_dropout_in_evaluation_mode():
    x = torch.randn(4)
    layer = Dropout(0.5)
    assert layer.eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert torch.equal(Dropout(1.0).train()(x), torch.zeros(4))


def test_masks_depend_on_the_global_generator():
    x = torch.ones(1000)
    torch.manual_seed(3)
    first = dropout(x, 0.5, training=True)
    second = dropout(x, 0.5, training=True)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.5, training=True), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_drops_weights(dtype):
    """On the average over many masks it is attention without dropout; one mask is not."""
    torch.manual_seed(0)
    layer = Attention(8, 2, dropout=0.2).to(dtype)
    x = torch.randn(9, 8, dtype=dtype)
    context = AttentionContext(Packed.from_lengths([3, 3, 3]), max_seqlen=3, device=x.device)
    plain = layer.eval()(x, context).float()
    layer.train()
    drawn = torch.stack([layer(x, context).float() for _ in range(4000)])
    assert not torch.allclose(drawn[0], plain, atol=1e-2)
    error = drawn.std(0) / 4000**0.5
    assert ((drawn.mean(0) - plain).abs() <= 6 * error + 1e-2 * (dtype == torch.bfloat16)).all()
