"""The fused cross-entropy equals the plain one."""

import pytest
import torch
from torch.nn import functional as F

from cloze.objectives import fused_cross_entropy
from cloze.objectives.fused_cross_entropy import fused_linear_cross_entropy, fused_linear_sample


def given(m=11, d=6, v=17, *, dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    vectors, table = torch.randn(m, d, generator=rng), torch.randn(v, d, generator=rng)
    bias, targets = torch.randn(v, generator=rng), torch.randint(v, (m,), generator=rng)
    targets[3] = -100
    return *(a.to(dtype).requires_grad_() for a in (vectors, table, bias)), targets


@pytest.mark.parametrize("rows", [3, 11, 100])
@pytest.mark.parametrize("with_bias", [True, False])
def test_loss_hits_and_gradients_equal_the_plain_ones(rows, with_bias):
    vectors, table, bias, targets = given(dtype=torch.float32)
    used = bias if with_bias else None
    scores = F.linear(vectors, table, used)
    expected = F.cross_entropy(scores, targets, reduction="sum")
    wanted = [vectors, table, *([bias] if with_bias else [])]
    slopes = torch.autograd.grad(2.5 * expected, wanted)
    loss, hits = fused_linear_cross_entropy(vectors, table, used, targets, chunk=rows)
    found = torch.autograd.grad(2.5 * loss, wanted)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert hits.item() == (scores.argmax(-1) == targets).sum().item()
    for a, b in zip(found, slopes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_blocks_on_a_cpu_change_nothing(rows, monkeypatch):
    def compute():
        vectors, table, bias, targets = given()
        draws = torch.rand(len(targets), generator=torch.Generator().manual_seed(1))
        loss, hits, picks = fused_linear_sample(vectors, table, bias, targets, draws, chunk=7)
        return [*torch.autograd.grad(loss, (vectors, table, bias)), loss, hits, picks]

    expected = compute()
    monkeypatch.setattr(fused_cross_entropy, "_CPU_BLOCK", 17 * rows)
    for a, b in zip(compute(), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_of_equal_logits_the_first_is_the_top_one():
    targets = torch.tensor([0, 1, 2, -100])
    _, hits = fused_linear_cross_entropy(torch.ones(4, 1), torch.ones(3, 1), None, targets)
    assert hits.item() == 1


def test_loss_without_gradients():
    with torch.no_grad():
        vectors, table, bias, targets = given(dtype=torch.float32)
        loss, _ = fused_linear_cross_entropy(vectors, table, bias, targets, chunk=4)
    expected = F.cross_entropy(F.linear(vectors, table, bias), targets, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_in_bfloat16_the_softmax_is_computed_in_float32():
    vectors, table, bias, targets = given(m=64, dtype=torch.float32)
    half = vectors.detach().bfloat16().requires_grad_()
    loss, _ = fused_linear_cross_entropy(half, table, bias, targets, chunk=16)
    loss.backward()
    exact = F.cross_entropy(F.linear(vectors, table, bias), targets, reduction="sum")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)
    assert (half.grad.dtype, table.grad.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("rows", [3, 11, 100])
def test_samples_follow_the_inverse_transform(rows):
    vectors, table, bias, targets = given(dtype=torch.float32)
    draws = torch.rand(11, generator=torch.Generator().manual_seed(1))
    loss, hits, picks = fused_linear_sample(vectors, table, bias, targets, draws, chunk=rows)
    sums = F.linear(vectors, table, bias).softmax(-1).cumsum(-1)
    expected = [int((row <= draw).sum()) for row, draw in zip(sums, draws, strict=True)]
    assert picks.tolist() == expected
    assert not picks.requires_grad
    plain = fused_linear_cross_entropy(vectors, table, bias, targets, chunk=rows)
    assert (loss.item(), hits.item()) == tuple(value.item() for value in plain)
    wanted = (vectors, table, bias)
    ours, theirs = (torch.autograd.grad(total, wanted) for total in (loss, plain[0]))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_samples_have_the_frequencies_of_the_softmax():
    m, rng = 40_000, torch.Generator().manual_seed(0)
    scores = torch.tensor([1.0, -torch.inf, 0.0, 2.0, -1.0])
    vectors, table = torch.ones(m, 1), torch.zeros(5, 1)
    draws = torch.rand(m, generator=rng)
    _, _, picks = fused_linear_sample(
        vectors, table, scores, torch.zeros(m).long(), draws, chunk=7000
    )
    frequencies = picks.bincount(minlength=5) / m
    assert frequencies.tolist() == pytest.approx(scores.softmax(-1).tolist(), abs=0.01)


def test_extreme_draws_give_valid_tokens():
    vectors, table = torch.zeros(3, 1), torch.zeros(4, 1)
    never_first = torch.tensor([-torch.inf, 0.0, 0.0, 0.0])  # whose sum may end just below 1
    draws = torch.tensor([0.0, 0.5, 1.0])
    _, _, picks = fused_linear_sample(vectors, table, never_first, torch.ones(3).long(), draws)
    assert picks.tolist() == [1, 2, 3]
