"""CKA against the formulas in numpy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import InputError
from cloze.interpret.similarity import MinibatchCKA, compute_cka
from generated_examples import examples
from helpers import raises


def draw(seed, *sizes, rows=40):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(rows, 3))
    return [shared @ rng.normal(size=(3, size)) + rng.normal(size=(rows, size)) for size in sizes]


def textbook_cka(x, y):
    """HSIC of centered Gram matrices.  Kornblith et al. 2019, eq. 3 and 4."""
    n = len(x)
    center = np.eye(n) - 1 / n
    k, m = center @ x @ x.T @ center, center @ y @ y.T @ center
    return np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m))


def unbiased_hsic(x, y):
    n, ones = len(x), np.ones(len(x))
    k, m = x @ x.T, y @ y.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    found = np.trace(k @ m) + (ones @ k @ ones) * (ones @ m @ ones) / (n - 1) / (n - 2)
    return (found - 2 / (n - 2) * (ones @ k @ m @ ones)) / n / (n - 3)


@examples(25)
@given(seed=st.integers(0, 10_000), d=st.integers(1, 30), e=st.integers(1, 30))
def test_cka_equals_the_textbook_and_ignores_rotation_scale_and_offset(seed, d, e):
    x, y = draw(seed, d, e)
    expected = textbook_cka(x, y)
    found = compute_cka(torch.tensor(x), torch.tensor(y))
    assert found == pytest.approx(expected, rel=1e-8)
    assert -1e-12 <= found <= 1 + 1e-12
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    moved = 3.7 * x @ rotation + 5
    assert compute_cka(torch.tensor(moved), torch.tensor(y)) == pytest.approx(expected, rel=1e-8)
    assert compute_cka(torch.tensor(x), torch.tensor(moved)) == pytest.approx(1.0)


@examples(15)
@given(seed=st.integers(0, 10_000), rows=st.integers(8, 30))
def test_minibatches_equal_the_unbiased_estimators_in_numpy(seed, rows):
    layers, others = draw(seed, 5, 7, rows=2 * rows), draw(seed + 1, 4, 6, 9, rows=2 * rows)
    cka = MinibatchCKA(2, 3)
    halves = [slice(0, rows), slice(rows, None)]
    for half in halves:
        cka.update([torch.tensor(x[half]) for x in layers], [torch.tensor(y[half]) for y in others])
    assert cka.count == 2 * rows
    found = cka.compute()

    def hsic(x, y):
        return sum(unbiased_hsic(x[half], y[half]) for half in halves)

    for i, x in enumerate(layers):
        for j, y in enumerate(others):
            scale = hsic(x, x) * hsic(y, y)
            if scale > 0:
                assert float(found[i, j]) == pytest.approx(hsic(x, y) / scale**0.5, rel=1e-6)


def test_layers_of_one_model_are_compared_with_each_other():
    cka = MinibatchCKA(3)
    cka.update([torch.tensor(x) for x in draw(0, 5, 5, 8)])
    found = cka.compute()
    torch.testing.assert_close(found.diagonal(), torch.ones(3).double())
    torch.testing.assert_close(found, found.T)


def test_minibatches_estimate_the_cka_of_many_examples():
    x, y = (torch.tensor(one) for one in draw(3, 6, 6, rows=4000))
    cka = MinibatchCKA(1, 1)
    for start in range(0, 4000, 100):
        part = slice(start, start + 100)
        cka.update([x[part]], [y[part]])
    assert float(cka.compute()) == pytest.approx(compute_cka(x, y), abs=0.02)


def test_few_examples_in_many_dimensions_do_not_look_similar():
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(20, 500, generator=rng) for _ in range(2))
    assert compute_cka(x, y) > 0.9
    cka = MinibatchCKA(1, 1)
    cka.update([x], [y])
    assert abs(float(cka.compute())) < 0.1


def test_a_minibatch_that_is_too_small_is_an_error():
    with raises(InputError, "3 examples", fix="4"):
        MinibatchCKA(1).update([torch.zeros(3, 2)])
