"""Linear layers in 8-bit integers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from cloze.nn.int8 import LOWEST, InputRange, Int8Linear, measure_input_ranges
from helpers import tiny_model


def make_layer(seed=0, inputs=32, outputs=24):
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=rng) / inputs**0.5
    return weight, torch.randn(outputs, generator=rng)


def relative_error(found, expected):
    return float((found - expected).norm() / expected.norm())


@given(st.integers(1, 40), st.floats(1e-4, 1e4))
def test_close_to_the_exact_product(count, size):
    weight, bias = make_layer()
    x = size * torch.randn(count, 32, generator=torch.Generator().manual_seed(count))
    found = Int8Linear(weight, None)(x)
    assert relative_error(found, x @ weight.t()) < 0.02
    torch.testing.assert_close(Int8Linear(weight, bias)(x), found + bias)
    torch.testing.assert_close(Int8Linear(weight, bias).add(x, found), found + bias + found)


@pytest.mark.parametrize("activation", LOWEST, ids=range(len(LOWEST)))
def test_the_lowest_value_of_an_activation(activation):
    values = activation(torch.linspace(-20, 20, 200_001))
    assert values.min() >= LOWEST[activation]
    assert values.min() < LOWEST[activation] + 0.01


def test_inputs_without_large_negative_values_use_all_bits():
    weight, bias = make_layer()
    x = F.gelu(torch.randn(50, 32, generator=torch.Generator().manual_seed(1)))
    exact = F.linear(x, weight, bias)
    symmetric = Int8Linear(weight, bias)(x)
    shifted = Int8Linear(weight, bias, lowest=-0.17)(x)
    assert relative_error(shifted, exact) < 0.8 * relative_error(symmetric, exact)


def test_large_elements_do_not_take_the_bits_of_others():
    weight, bias = make_layer()
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(60, 32, generator=rng)
    x[:, 3] = 40 + x[:, 3]  # large, but nearly constant
    x[:, 7] *= 25
    exact = F.linear(x, weight, bias)
    measured = InputRange(x[:30].amin(0), x[:30].amax(0))
    plain, centered = Int8Linear(weight, bias)(x), Int8Linear(weight, bias, measured)(x)
    assert relative_error(centered, exact) < 0.4 * relative_error(plain, exact)


@pytest.mark.parametrize("lowest", [None, 0.0, -0.17])
def test_vectors_of_zeros_and_of_extreme_values(lowest):
    weight, bias = make_layer()
    layer = Int8Linear(weight, bias, lowest=lowest)
    torch.testing.assert_close(layer(torch.zeros(3, 32)), bias.expand(3, -1), atol=0.02, rtol=0)
    for size in (1e-20, 1e20):
        x = size * torch.rand(2, 32, generator=torch.Generator().manual_seed(0))
        assert layer(x).isfinite().all()
        if size > 1:
            assert relative_error(layer(x), F.linear(x, weight, bias)) < 0.02


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_ranges_are_measured_without_dropout_and_hooks_are_removed(family):
    model = tiny_model(family=family).module
    model.train()
    found, again = measure_input_ranges(model), measure_input_ranges(model)
    assert len(found) == 2 * len(model.blocks)
    for layer, one in found.items():
        assert (one.low <= one.high).all()
        assert torch.equal(one.low, again[layer].low)
        assert not layer._forward_pre_hooks
    assert model.training
