"""Soft targets, masked tokens and hidden states: against numpy, by gradients, and as sums."""

import numpy as np
import pytest
import torch

from cloze.models.build import build
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.objectives.core import Learner
from cloze.objectives.distillation import (
    Distillation,
    DistillationBatch,
    compute_cosine_loss,
    compute_soft_target_loss,
)
from cloze.objectives.pretraining import pretraining_objective
from helpers import scramble
from training import SHAPE, VOCABULARY, packed, tiny_bert


def batch_of(*numbers):
    return DistillationBatch.from_batch(packed(numbers))


@pytest.fixture(scope="module")
def teacher():
    return scramble(tiny_bert()).eval().requires_grad_(False)


@pytest.fixture
def student():
    config = DistilBertConfig(vocab_size=VOCABULARY, **SHAPE | {"num_layers": 1})
    return scramble(build(config, ["mlm"], rng=torch.Generator()), seed=7).eval()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 7.0])
def test_soft_target_loss(temperature):
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0, 4, (2, 9, 30))

    def softmax(x):
        e = np.exp(x / temperature)
        return e / e.sum(1, keepdims=True)

    p, q = softmax(theirs), softmax(ours)
    expected = temperature**2 * (p * np.log(p / q)).sum()
    total = compute_soft_target_loss(torch.from_numpy(ours), torch.from_numpy(theirs), temperature)
    assert total.dtype == torch.float64
    assert total.item() == pytest.approx(expected, rel=1e-12)


def test_cosine_loss():
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(0, 3, (2, 11, 8))
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    total = compute_cosine_loss(torch.from_numpy(ours), torch.from_numpy(theirs))
    assert total.item() == pytest.approx((1 - cosines).sum(), rel=1e-12)


def test_half_precision_is_summed_in_float32():
    logits = torch.randn(2, 300, 7).bfloat16()
    for total in (compute_soft_target_loss(*logits, 2.0), compute_cosine_loss(*logits)):
        assert total.dtype == torch.float32
    assert torch.equal(
        compute_soft_target_loss(*logits, 2.0), compute_soft_target_loss(*logits.float(), 2.0)
    )


def test_the_terms_are_three_losses_and_two_accuracies(student, teacher):
    batch = batch_of(1, 2, 3)
    objective = Distillation(teacher=teacher)
    terms = objective(student, batch)
    assert {name for name, term in terms.items() if term.requires_grad} == {"soft", "mlm", "cosine"}
    plain = pretraining_objective(student, batch)
    torch.testing.assert_close(terms["mlm"], plain["mlm"])
    assert terms["mlm.accuracy"] == plain["mlm.accuracy"]
    ids = torch.from_numpy(batch.input_ids)
    begin, end = batch.starts[1:3]
    one = batch_of(2)
    hidden, aim = student(ids[None, begin:end])[0], teacher(ids[None, begin:end])[0]
    guesses = teacher.logits("mlm", aim[one.masked_positions])
    alone = objective(student, one)
    torch.testing.assert_close(alone["cosine"], compute_cosine_loss(hidden, aim))
    words = student.logits("mlm", hidden[one.masked_positions])
    torch.testing.assert_close(alone["soft"], compute_soft_target_loss(words, guesses, 2.0))
    assert alone["mlm.teacher"] == (guesses.argmax(-1) == torch.from_numpy(one.targets)).sum()


def test_sums_equal_those_of_single_sequences(student, teacher):
    batch, objective = batch_of(*range(6)), Distillation(teacher=teacher)
    terms = objective(student, batch)
    singles = [objective(student, one) for one in batch.split(6)]
    assert len(singles) == 6
    for name, total in terms.items():
        torch.testing.assert_close(total, torch.stack([one[name] for one in singles]).sum())


def test_counts_of_a_distillation_batch():
    batch = batch_of(1, 2, 3)
    masked = len(batch.masked_positions)
    assert batch.counts == {"mlm": masked, "soft": masked, "cosine": len(batch.input_ids)}
    parts = batch.split(3)
    assert {type(part) for part in parts} == {DistillationBatch}
    assert sum(part.counts["cosine"] for part in parts) == batch.counts["cosine"]


def gradient(student, teacher, *learned, **weights):
    """Of the terms named, as one long vector."""
    student.zero_grad()
    terms = Distillation(teacher=teacher, **weights)(student, batch_of(1, 2))
    sum(terms[name] for name in learned or ("soft", "mlm", "cosine")).backward()
    found = ((weight, weight.grad) for weight in student.parameters())
    return torch.cat(
        [torch.zeros_like(w).flatten() if g is None else g.flatten() for w, g in found]
    )


def test_weights_scale_the_gradient_and_not_the_reported_loss(student, teacher):
    ones = {"soft_weight": 1.0, "mlm_weight": 1.0, "cosine_weight": 1.0}
    expected = sum(
        weight * gradient(student, teacher, name, **ones)
        for name, weight in (("soft", 5.0), ("mlm", 2.0), ("cosine", 1.0))
    )
    torch.testing.assert_close(gradient(student, teacher), expected)
    reported = [
        Distillation(teacher=teacher, **weights)(student, batch_of(1)) for weights in (ones, {})
    ]
    assert reported[0] == reported[1]


def test_gradients_reach_every_weight_of_the_student_and_none_of_the_teacher(student, teacher):
    learner = Learner(student, Distillation(teacher=teacher)).train()
    before = {name: weight.clone() for name, weight in teacher.state_dict().items()}
    assert not teacher.training
    assert all(name.startswith("model.") for name, _ in learner.named_parameters())
    sum(learner(batch_of(*range(8))).values()).backward()
    for name, weight in student.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name
    assert all(weight.grad is None for weight in teacher.parameters())
    for name, weight in teacher.state_dict().items():
        assert torch.equal(weight, before[name])


def test_a_student_equal_to_its_teacher_has_only_the_mlm_loss(teacher):
    terms = Distillation(teacher=teacher)(teacher, batch_of(1, 2))
    assert terms["soft"].item() == pytest.approx(0, abs=1e-5)
    assert terms["cosine"].item() == pytest.approx(0, abs=1e-5)
    assert terms["mlm.accuracy"] == terms["mlm.teacher"]


def test_without_a_masked_lm_head_there_is_only_the_cosine_loss():
    config = BertConfig(vocab_size=VOCABULARY, **SHAPE)
    bare = [scramble(build(config, rng=torch.Generator()), seed=n).eval() for n in (1, 2)]
    assert set(Distillation(teacher=bare[0])(bare[1], batch_of(1))) == {"cosine"}
