"""Gradient caching: the gradients of one large batch in the memory of a part."""

import json
import warnings

import numpy as np
import pytest
import torch

from cloze.data.pair_batch import RowShape
from cloze.train.gradients import compute_gradients, split_batches
from cloze.train.joint_gradients import find_joint_objective
from cloze.train.memory import SmallerBatchWarning
from contrastive import pair_bert, pair_data, pair_objective, pair_parts
from parallel_jobs import contrastive
from training import in_processes, new_state, steps_of


def gradients(state, parts):
    """The mean losses and the gradient of every weight."""
    counts: dict[str, float] = {}
    for part in parts:
        for name, count in part.counts.items():
            counts[name] = counts.get(name, 0) + count
    means = compute_gradients(state, parts, counts, max(part.size for part in parts))
    found = {
        name: w.grad.clone() for name, w in state.model.named_parameters() if w.grad is not None
    }
    state.optimizer.zero_grad(set_to_none=True)
    return {name: float(value) for name, value in means.items()}, found


def one_graph(state, parts):
    """The loss of all parts with one graph, dropout as in training, by plain autograd."""
    from cloze.train.forward_context import seed_rng

    objective = find_joint_objective(state.learner)
    outputs = []
    for index, part in enumerate(parts):
        with seed_rng(state.device, state.config.seed, state.progress.step, 0, index) as rng:
            outputs.append(state.learner(part, rng))
    order = np.concatenate([part.vectors for part in parts]).argsort()
    vectors = torch.cat([one.vectors for one in outputs])[torch.from_numpy(order)]
    loss = objective.compute_loss(vectors, parts[0])["embed"] / len(parts[0].layout)
    masked = sum(part.num_masked for part in parts)
    for one in outputs:
        loss = loss + one.terms.get("mlm", torch.zeros(())) / max(masked, 1)
    loss.backward()
    found = {
        name: w.grad.clone() for name, w in state.model.named_parameters() if w.grad is not None
    }
    state.optimizer.zero_grad(set_to_none=True)
    return loss.item(), found


@pytest.mark.parametrize("weight", [0.0, 0.5])
@pytest.mark.parametrize("tokens", [24, 70, 10_000])
def test_cached_gradients_equal_those_of_one_graph(tokens, weight):
    """In float64, with dropout: ten parts, three, and one."""
    torch.set_default_dtype(torch.float64)
    try:
        model = pair_bert(0.3).double().train()
        state = new_state(model, objective=pair_objective(mlm_weight=weight), seed=7)
        parts = pair_parts(0, tokens, mlm=bool(weight))
        assert (len(parts) > 1) == (tokens < 10_000)
        loss, expected = one_graph(state, parts)
        means, found = gradients(state, parts)
    finally:
        torch.set_default_dtype(torch.float32)
    # the masked-LM loss is reported in float32, and not scaled as its gradient is
    exact = 1e-6 if weight else 1e-10
    assert means["embed"] + (means["mlm"] if weight else 0) == pytest.approx(loss, abs=exact)
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        assert (gradient - found[name]).abs().max() <= 1e-10, name


def test_the_size_of_the_parts_changes_nothing_without_dropout():
    state = new_state(pair_bert().double(), objective=pair_objective())
    one, whole = gradients(state, pair_parts(0, 10_000))
    for tokens in (16, 40, 100):
        means, found = gradients(state, pair_parts(0, tokens))
        assert means == pytest.approx(one, abs=1e-6)
        for name, gradient in whole.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_rows_of_a_fixed_shape_give_the_same_gradients(pooling):
    """As on a GPU: padded packed rows, here with masked attention; also when they are halved."""
    state = new_state(pair_bert(), objective=pair_objective(pooling=pooling))
    expected, whole = gradients(state, pair_parts(0, 10_000))
    parts = pair_parts(0, 64, shape=RowShape(64, 12))
    halves = [half for part in parts for half in part.split(2)]
    assert {part.shape.tokens for part in halves} == {44}
    for given in (parts, halves):
        means, found = gradients(state, given)
        assert means == pytest.approx(expected, abs=1e-5)
        for name, gradient in whole.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-4)


def test_masked_tokens_of_a_fixed_shape_are_counted():
    state = new_state(pair_bert(), objective=pair_objective(mlm_weight=1.0), seed=2)
    parts = pair_parts(0, 64, shape=RowShape(64, 12), mlm=True)
    means, found = gradients(state, parts)
    assert 0 < means["mlm"] < 10
    assert any(name.startswith("task_heads.mlm") for name in found)


def test_out_of_memory_makes_parts_smaller_and_keeps_the_loss():
    class Limited:
        """Runs out of memory if a part has too many tokens."""

        def __init__(self, inner, most):
            self.inner, self.most = inner, most

        def embed(self, model, batch):
            self.check(batch)
            return self.inner.embed(model, batch)

        def __call__(self, model, batch, rng=None):
            self.check(batch)
            return self.inner(model, batch, rng)

        def get_loss_weights(self, model):
            return self.inner.get_loss_weights(model)

        def compute_loss(self, vectors, batch, loss_weights=()):
            return self.inner.compute_loss(vectors, batch, loss_weights)

        def check(self, batch):
            if batch.size > self.most:
                raise torch.OutOfMemoryError("out of memory")

    free = new_state(pair_bert(), objective=pair_objective())
    limited = new_state(pair_bert(), objective=Limited(pair_objective(), 40))
    parts = pair_parts(0, 10_000)
    expected, whole = gradients(free, parts)
    with pytest.warns(SmallerBatchWarning):
        means, found = gradients(limited, parts)
    assert means == pytest.approx(expected, abs=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-4)
    assert limited.max_micro_tokens is not None
    assert all(one.size <= 40 for one in split_batches(limited, parts))


def test_split_parts_share_the_layout():
    (whole,) = pair_parts(3, 10_000, mlm=True)
    first, second = whole.split(2)
    assert first.layout is whole.layout
    assert sorted([*first.vectors, *second.vectors]) == sorted(whole.vectors)
    assert first.size + second.size == whole.size
    assert first.counts["embed"] + second.counts["embed"] == whole.counts["embed"]


def test_training_reduces_the_loss_and_resumes():
    state = new_state(pair_bert(0.1), objective=pair_objective(mlm_weight=0.1), rate=5e-3, seed=3)
    steps = steps_of(state, 30, source=pair_data(60, mlm=True))
    assert steps[-1].means["embed"] < steps[0].means["embed"]
    assert {"embed", "embed.accuracy", "mlm", "mlm.accuracy"} == {*steps[0].means}


def test_two_processes_learn_what_one_would(tmp_path):
    """The vectors of all processes are compared, without dropout."""
    in_processes(2, contrastive, tmp_path)
    reports = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = new_state(pair_bert(), objective=pair_objective(), seed=3)
        steps = steps_of(state, 6, source=pair_data(60))
    weights = {name: w.detach().flatten().tolist() for name, w in state.model.named_parameters()}
    for report in reports:
        for ours, step in zip(report["losses"], steps, strict=True):
            assert ours == pytest.approx(step.means, abs=1e-5)
        assert report["norms"] == pytest.approx([step.grad_norm for step in steps], abs=1e-5)
        for name, values in weights.items():
            assert report["weights"][name] == pytest.approx(values, abs=1e-5), name
    assert reports[0]["weights"] == reports[1]["weights"]


def test_the_masked_lm_has_no_dropout():
    model, objective = pair_bert(dropout=0.5), pair_objective(mlm_weight=1.0)
    (part,) = pair_parts(0, 1000, mlm=True)

    def run(seed: int):
        torch.manual_seed(seed)
        return objective(model, part, torch.Generator().manual_seed(0))

    one, other = run(0), run(1)
    assert not torch.equal(one.vectors, other.vectors)
    assert torch.equal(one.terms["mlm"], other.terms["mlm"])
    assert model.training
