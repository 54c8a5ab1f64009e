import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cloze.errors import ConfigError, InputError
from cloze.objectives.pretraining import pretraining_objective
from cloze.train.config import LoopConfig
from cloze.train.cuda_graphs import names_with_targets
from cloze.train.loop import evaluate_objective, training_steps
from cloze.train.memory import gradient_checkpointing
from cloze.train.schedule import Budget, Schedule
from helpers import raises
from training import data, micro_batches, new_state, packed, same, steps_of, tiny_bert

FLAT = Schedule(shape="constant", warmup=0.0)


def in_groups(parts: int, steps: int = 3):
    """The same eight samples to a step, cut into so many micro-batches."""
    return lambda start: (
        [*packed(range(8 * n, 8 * n + 8)).split(parts)] for n in range(start, steps)
    )


def test_accumulation_equals_one_big_batch():
    whole, cut = new_state(tiny_bert().double()), new_state(tiny_bert().double())
    one, many = steps_of(whole, 3, source=in_groups(1)), steps_of(cut, 3, source=in_groups(5))
    assert [len(step.sample_ids) for step in many] == [5, 5, 5]
    for a, b in zip(one, many, strict=True):
        assert a.means == pytest.approx(b.means, rel=1e-12)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-12)
        assert np.concatenate(a.sample_ids).tolist() == np.concatenate(b.sample_ids).tolist()
    for a, b in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_mean_of_means_would_be_another_loss():
    """The batches above must be able to tell the two apart."""
    state = new_state()
    parts = packed(range(8)).split(5)
    naive = np.mean([evaluate_objective(state, [part])["mlm"] for part in parts])
    assert evaluate_objective(state, parts)["mlm"] != pytest.approx(naive, rel=1e-5)
    assert evaluate_objective(state, parts)["mlm"] == pytest.approx(
        evaluate_objective(state, [packed(range(8))])["mlm"]
    )


def test_it_learns():
    state = new_state(rate=5e-3)
    batch = [packed(range(16))]
    steps = steps_of(state, 120, source=lambda _: (batch for _ in range(120)))
    assert steps[-1].means["mlm"] < 0.2 * steps[0].means["mlm"]
    assert steps[-1].means["mlm.accuracy"] > 0.9
    assert evaluate_objective(state, batch)["mlm"] < steps[-1].means["mlm"] + 0.1


def test_the_rate_follows_the_budget_to_its_end():
    state = new_state(rate=1.0)
    steps = list(
        training_steps(state, data(), budget=Budget(steps=4), schedule=Schedule(warmup=0.5))
    )
    assert [step.lr for step in steps] == [0.25, 0.75, 0.75, 0.25]
    assert [step.is_last for step in steps] == [False, False, False, True]


def test_a_budget_of_tokens_ends_with_the_tokens():
    steps = list(training_steps(new_state(), data(), budget=Budget(tokens=200), schedule=FLAT))
    assert steps[-1].tokens >= 200 > steps[-2].tokens
    assert steps[-1].tokens == sum(
        int(batch.lengths.sum()) for n in range(len(steps)) for batch in micro_batches(n)
    )


def test_a_budget_of_minutes_goes_by_the_clock_of_all_sittings(monkeypatch):
    """A step takes five seconds, and its data five; the first sitting ended in the middle."""
    clock = iter(range(1000, 9000, 5))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    state, budget, schedule = new_state(rate=1.0), Budget(minutes=1), Schedule(warmup=0.0)
    steps = training_steps(state, data(), budget=budget, schedule=schedule)
    first = [next(steps) for _ in range(3)]
    assert [step.seconds for step in first] == [10, 20, 30]
    steps.close()
    second = list(training_steps(state, data(), budget=budget, schedule=schedule))
    assert [step.seconds for step in second] == [40, 50, 60]
    assert [step.lr for step in second] == pytest.approx([5 / 12, 1 / 4, 1 / 12])
    assert [step.is_last for step in second] == [False, False, True]
    assert state.progress.seconds == 60
    assert schedule(budget.fraction(state.progress)) == 0


def test_data_that_end_too_soon_say_so():
    with raises(InputError, "step 3", "budget"):
        steps_of(new_state(), 5, source=in_groups(1))


def test_a_batch_without_targets_says_so():
    none = np.zeros(0, np.int64)
    empty = replace(packed([1]), masked_positions=none, targets=none, labels=np.array([-100]))
    with raises(InputError, "step 1"):
        steps_of(new_state(), 1, source=lambda _: iter([[empty]]))


def test_a_loss_without_targets_in_the_whole_batch_is_not_reported():
    quiet = replace(packed([1, 2]), labels=np.full(2, -100))
    (step,) = steps_of(new_state(), 1, source=lambda _: iter([[quiet]]))
    assert set(step.means) == {"mlm", "mlm.accuracy"}
    recorded = ("mlm", "mlm.accuracy", "nsp", "nsp.accuracy")  # with or without targets
    assert names_with_targets(recorded, {"mlm": 3, "nsp": 0}) == ("mlm", "mlm.accuracy", None, None)


def test_stop_ends_after_the_step_in_hand_and_the_next_sitting_goes_on():
    wish: list[int] = []
    state = new_state()
    steps = training_steps(
        state, data(), budget=Budget(steps=9), schedule=FLAT, stop=lambda: bool(wish)
    )
    taken = []
    for step in steps:
        taken.append(step.number)
        if step.number == 4:
            wish.append(1)
    assert taken == [1, 2, 3, 4]
    rest = training_steps(state, data(), budget=Budget(steps=9), schedule=FLAT)
    assert [step.number for step in rest] == [5, 6, 7, 8, 9]


def test_clipping_bounds_the_gradient_and_the_norm_is_told_as_it_was():
    wide, narrow = new_state(clip_norm=math.inf), new_state(clip_norm=1e-3)
    seen: list[float] = []
    for state in (wide, narrow):
        plain = state.optimizer.step

        def step(state=state, plain=plain):
            grads = [weight.grad.norm() for weight in state.model.parameters()]
            seen.append(torch.stack(grads).norm().item())
            plain()

        state.optimizer.step = step  # type: ignore[method-assign]
    (one,), (other,) = steps_of(wide, 1), steps_of(narrow, 1)
    assert one.grad_norm == other.grad_norm == pytest.approx(seen[0])
    assert seen[1] == pytest.approx(1e-3, rel=1e-3)


def test_dropout_follows_from_the_key_and_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    one, other = new_state(tiny_bert(0.3), seed=5), new_state(tiny_bert(0.3), seed=6)
    first = [step.means["mlm"] for step in steps_of(one, 3)]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)  # whatever others draw in between
    assert [step.means["mlm"] for step in steps_of(new_state(tiny_bert(0.3), seed=5), 3)] == first
    assert [step.means["mlm"] for step in steps_of(other, 3)] != first


def test_every_step_and_every_micro_batch_drops_something_else():
    same_batch = [[packed([1]), packed([1])]] * 3
    seen = []

    def looking(model, batch, rng):
        terms = pretraining_objective(model, batch, rng)
        seen.append(terms["mlm"].item())
        return terms

    state = new_state(tiny_bert(0.3), objective=looking, rate=0.0)
    steps_of(state, 3, source=lambda _: iter(same_batch))
    assert len(set(seen)) == 6


def test_an_evaluation_between_two_steps_disturbs_nothing():
    plain, watched = new_state(tiny_bert(0.3)), new_state(tiny_bert(0.3))
    steps_of(plain, 4)
    for _ in training_steps(watched, data(), budget=Budget(steps=4), schedule=Schedule(warmup=0.1)):
        evaluate_objective(watched, [packed(range(5))])
        torch.rand(3)
    same(dict(plain.model.named_parameters()), dict(watched.model.named_parameters()))


def test_evaluation_is_without_dropout_and_leaves_the_mode_as_it_was():
    state = new_state(tiny_bert(0.5))
    state.learner.train()
    batches = [packed(range(3)), packed([7])]
    assert evaluate_objective(state, batches) == evaluate_objective(state, batches)
    assert state.model.training
    assert all(weight.grad is None for weight in state.model.parameters())


def test_evaluation_asks_for_no_number_and_no_float64_on_its_way():
    """A GPU is not waited for until all is sent to it, and Apple's has no float64."""
    seen = []

    def objective(model, batch, rng=None):
        seen.append("batch")
        return {"mlm": next(model.parameters()).sum()}

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            found = op(*args, **(kwargs or {}))
            if "local_scalar" in str(op) or getattr(found, "dtype", None) == torch.float64:
                seen.append("slow")
            return found

    with Watching():
        evaluate_objective(
            new_state(objective=objective), [packed(range(3)), packed([7]), packed([8])]
        )
    assert seen[:3] == ["batch"] * 3
    assert set(seen[3:]) == {"slow"}


def test_recomputing_gives_the_same_gradients_with_dropout_too():
    plain, thrifty = new_state(tiny_bert(0.3)), new_state(tiny_bert(0.3))
    calls: list[int] = []
    thrifty.model.blocks[0].attention.register_forward_hook(lambda *_: calls.append(1))
    steps_of(plain, 3)
    with gradient_checkpointing(thrifty.model.blocks):
        steps_of(thrifty, 3)
    assert len(calls) == 2 * 3 * 4, "forwards and again backwards, in 3 steps of 4 micro-batches"
    same(dict(plain.model.named_parameters()), dict(thrifty.model.named_parameters()))
    assert "forward" not in vars(thrifty.model.blocks[0])


def test_bf16_computes_in_bf16_and_keeps_float32():
    seen: list[torch.dtype] = []

    def looking(model, batch, rng):
        terms = pretraining_objective(model, batch, rng)
        seen.append(model.blocks[0].ffn.up(torch.zeros(1, 16)).dtype)
        return terms

    half, full = new_state(objective=looking, dtype="bf16"), new_state()
    (a,), (b,) = steps_of(half, 1), steps_of(full, 1)
    assert set(seen) == {torch.bfloat16}
    assert a.means["mlm"] == pytest.approx(b.means["mlm"], rel=1e-2)
    assert a.means["mlm"] != b.means["mlm"]
    assert {weight.dtype for weight in half.model.parameters()} == {torch.float32}


def test_an_unknown_choice_says_which_there_are():
    with raises(ConfigError, "bf", fix="bf16"):
        LoopConfig(dtype="bf")
    with raises(ConfigError, "guard", "ski", fix="skip"):
        LoopConfig(guard="ski")


def test_a_step_is_all_there_is_to_log():
    (step,) = steps_of(new_state(), 1)
    assert set(step.means) == {"mlm", "mlm.accuracy", "nsp", "nsp.accuracy"}
    assert copy.copy(step).means == step.means
    unnamed = replace(step, names=(step.names[0], None, *step.names[2:]))
    assert set(unnamed.means) == set(step.means) - {step.names[1]}
    assert unnamed.grad_norm == step.grad_norm
