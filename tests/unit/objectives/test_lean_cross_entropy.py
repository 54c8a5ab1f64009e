"""The lean cross-entropy is the cross-entropy."""

import pytest
import torch
from torch.nn import functional as F

from cloze.objectives.lean import lean_cross_entropy


def given(m=11, d=6, v=17, *, dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    vectors, table = torch.randn(m, d, generator=rng), torch.randn(v, d, generator=rng)
    bias, targets = torch.randn(v, generator=rng), torch.randint(v, (m,), generator=rng)
    targets[3] = -100
    return *(a.to(dtype).requires_grad_() for a in (vectors, table, bias)), targets


@pytest.mark.parametrize("rows", [3, 11, 100])
@pytest.mark.parametrize("with_bias", [True, False])
def test_loss_hits_and_gradients_are_the_plain_ones(rows, with_bias):
    vectors, table, bias, targets = given(dtype=torch.float32)
    used = bias if with_bias else None
    scores = F.linear(vectors, table, used)
    expected = F.cross_entropy(scores, targets, reduction="sum")
    wanted = [vectors, table, *([bias] if with_bias else [])]
    slopes = torch.autograd.grad(2.5 * expected, wanted)
    loss, hits = lean_cross_entropy(vectors, table, used, targets, rows=rows)
    found = torch.autograd.grad(2.5 * loss, wanted)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert hits.item() == (scores.argmax(-1) == targets).sum().item()
    for a, b in zip(found, slopes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_without_learning_there_is_a_loss_too():
    with torch.no_grad():
        vectors, table, bias, targets = given(dtype=torch.float32)
        loss, _ = lean_cross_entropy(vectors, table, bias, targets, rows=4)
    expected = F.cross_entropy(F.linear(vectors, table, bias), targets, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_in_bfloat16_the_softmax_is_exact_all_the_same():
    vectors, table, bias, targets = given(m=64, dtype=torch.float32)
    half = vectors.detach().bfloat16().requires_grad_()
    loss, _ = lean_cross_entropy(half, table, bias, targets, rows=16)
    loss.backward()
    exact = F.cross_entropy(F.linear(vectors, table, bias), targets, reduction="sum")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)
    assert (half.grad.dtype, table.grad.dtype) == (torch.bfloat16, torch.float32)
