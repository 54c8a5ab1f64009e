import warnings

import numpy as np
import pytest
import torch

from cloze.objectives.pretraining import pretraining_objective
from cloze.train.consumers import save_steps
from cloze.train.guard import (
    BadStepError,
    SkippedStepWarning,
    TrainingError,
    empty_norms,
    format_samples,
    is_bad_step,
)
from cloze.train.loop import training_steps
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import resume_training_state, save_training_state, snapshot
from cloze.train.step import AsyncValues
from helpers import raises
from training import data, new_state, same, steps_of, tiny_bert


class Poison:
    """The objective of pre-training, its loss multiplied in some steps (of four micro-batches)."""

    def __init__(self, factors: dict[int, float], term: str = "mlm") -> None:
        self.factors, self.term, self.calls = factors, term, 0

    def __call__(self, model, batch, rng):
        step, part = divmod(self.calls, 4)
        self.calls += 1
        terms = dict(pretraining_objective(model, batch, rng))
        if part == 2 and step + 1 in self.factors:
            terms[self.term] = terms[self.term] * self.factors[step + 1]
        return terms


def memory_of(state):
    """Copies of all weights and moments."""
    saved = snapshot(state, {})
    return saved.tensors["model"] | saved.tensors["optimizer"]


def weights_of(state):
    return {name: weight.detach().clone() for name, weight in state.model.named_parameters()}


def until_it_stops(state, steps=8):
    """Train until it raises: the error, and what the weights were after each step."""
    seen = [memory_of(state)]
    taken = training_steps(state, data(), budget=Budget(steps=steps), schedule=Schedule(warmup=0.1))
    with pytest.raises(TrainingError) as error:
        seen.extend(memory_of(state) for _ in taken)
    return str(error.value), seen


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("term", ["mlm", "nsp"])
@pytest.mark.parametrize("bad", [1, 4])
def test_a_bad_step_raises_before_it_touches_anything(factor, term, bad):
    state = new_state(objective=Poison({bad: factor}, term))
    message, seen = until_it_stops(state)
    assert len(seen) == bad
    after = memory_of(state)
    same({name: after[name] for name in seen[-1]}, seen[-1])  # at first there are no moments yet
    assert all(not after[name].any() for name in after.keys() - seen[-1].keys())
    assert state.progress.step == bad - 1
    first = (bad - 1) * 8
    assert f"step {bad} (" in message
    assert ", ".join(map(str, range(first, first + 8))) in message
    assert "weights" in message
    assert "run.guard=skip" in message


def test_after_a_stop_the_state_goes_on_as_if_nothing_had_been():
    """Whoever mends the cause and runs on gets what a sound run would have given."""
    state = new_state(objective=Poison({3: float("nan")}))
    until_it_stops(state)
    state.learner.objective.factors = {}
    steps_of(state, 8)
    sound = new_state()
    steps_of(sound, 8)
    same(memory_of(state), memory_of(sound))
    assert state.recent_norms[-8:].tolist() == sound.recent_norms[-8:].tolist()


def test_skipping_leaves_one_step_out_and_goes_on():
    state = new_state(objective=Poison({3: float("nan")}), guard="skip")
    steps = training_steps(state, data(), budget=Budget(steps=5), schedule=Schedule())
    found = r"step 3 \(mlm nan.*samples 16, 17"
    with pytest.warns(SkippedStepWarning, match=found) as told:
        taken = [(step, memory_of(state)) for step in steps]
    taken, after = zip(*taken, strict=True)
    assert len(told) == 1
    assert [step.is_bad for step in taken] == [False, False, True, False, False]
    assert [step.number for step in taken] == [1, 2, 3, 4, 5]
    same(after[1], after[2])
    assert not torch.equal(after[2]["embeddings.word.weight"], after[3]["embeddings.word.weight"])


def test_too_many_bad_steps_in_a_row_stop_the_run_all_the_same():
    always = {n: float("nan") for n in (2, *range(4, 14))}
    state = new_state(objective=Poison(always), guard="skip")
    with (
        pytest.warns(SkippedStepWarning),
        raises(TrainingError, "step 13", "10"),
    ):
        steps_of(state, 20)
    assert state.progress.step == 12


def test_a_spike_is_judged_by_the_median_of_the_last_norms():
    recent = empty_norms(torch.device("cpu"))[:8]
    means = torch.ones(2)

    def bad(norm: float) -> bool:
        return bool(is_bad_step(means, torch.tensor(norm), recent))

    recent[:3] = torch.tensor([1.0, 2.0, 3.0])
    assert not bad(1e6), "too few to judge by"
    recent[3] = 1000.0  # the median of 1, 2, 3, 1000 is not their mean
    assert bad(100.5)
    assert not bad(99.5)
    for norm, expected in ((149.5, False), (150.5, True)):
        found = is_bad_step(means, torch.tensor(norm), recent, usual=3.0)
        assert bool(found) == expected, "the median is 2, but norms up to 3 are nothing unusual"
    assert bad(float("nan"))
    assert bool(is_bad_step(torch.tensor([1.0, torch.inf]), torch.tensor(1.0), recent))


def test_a_spike_in_a_run_is_held_back_and_not_remembered():
    state = new_state(objective=Poison({7: 1e4, 8: 1e4}), guard="skip")
    state.recent_norms = state.recent_norms[
        :6
    ].clone()  # a short memory, so that a short run fills it
    with pytest.warns(SkippedStepWarning, match="step [78]"):
        steps = steps_of(state, 10)
    assert [step.number for step in steps if step.is_bad] == [7, 8]
    sound = [step.grad_norm for step in steps if not step.is_bad]
    assert state.recent_norms.tolist() == pytest.approx(sound[-6:])


def test_a_large_gradient_that_is_clipped_does_not_end_a_run():
    state = new_state(objective=Poison({7: 200.0}), clip_norm=1.0)
    state.recent_norms = state.recent_norms[:6].clone()
    (large,) = (step for step in steps_of(state, 10) if step.number == 7)
    assert large.grad_norm > 50
    assert state.progress.step == 10


def test_an_optimiser_that_cannot_read_the_flag_on_the_device_is_not_called():
    state = new_state(objective=Poison({3: float("nan")}))
    state.optimizer = torch.optim.SGD(state.model.parameters(), lr=0.1)
    for group in state.optimizer.param_groups:
        group["peak"] = 0.1
    message, seen = until_it_stops(state)
    assert "step 3 (" in message
    same(memory_of(state), seen[-1])


class Slow(AsyncValues):
    """A device that is always a step behind: nothing is ready until someone waits for it."""

    is_ready = False


def test_a_device_that_lags_behind_is_told_to_hold_back_all_that_follows(monkeypatch):
    """As on a GPU: the verdict on step 3 is read when step 4 is under way."""
    monkeypatch.setattr("cloze.train.loop.AsyncValues", Slow)
    state = new_state(objective=Poison({3: float("nan")}))
    steps = training_steps(state, data(), budget=Budget(steps=8), schedule=Schedule())
    seen = []
    with raises(TrainingError, "step 3"):
        seen.extend((step.number, weights_of(state)) for step in steps)
    assert [number for number, _ in seen] == [1, 2, 3], "step 4 was taken and not told"
    same(seen[1][1], seen[2][1])
    same(seen[1][1], weights_of(state))
    assert state.progress.step == 2


def test_a_device_that_lags_behind_counts_the_bad_steps_itself(monkeypatch):
    """Step 5 is sound, but step 4 was one bad step too many."""
    monkeypatch.setattr("cloze.train.loop.AsyncValues", Slow)
    monkeypatch.setattr("cloze.train.guard.PATIENCE", 2)
    state = new_state(objective=Poison({3: float("nan"), 4: float("nan")}), guard="skip")
    steps = training_steps(state, data(), budget=Budget(steps=8), schedule=Schedule())
    seen = []
    with (
        pytest.warns(SkippedStepWarning, match="step 3"),
        raises(TrainingError, "step 4", "2"),
    ):
        seen.extend(weights_of(state) for _ in steps)
    assert len(seen) == 4
    same(weights_of(state), seen[1])
    assert state.progress.step == 3


def test_a_bad_step_whose_verdict_is_out_cannot_be_saved(monkeypatch):
    monkeypatch.setattr("cloze.train.loop.AsyncValues", Slow)
    state = new_state(objective=Poison({3: float("nan")}))
    steps = training_steps(state, data(), budget=Budget(steps=8), schedule=Schedule())
    for _ in range(3):
        next(steps)
    with raises(TrainingError, "step 3"):
        snapshot(state, {})
    assert snapshot(state, {}).step == 2


def test_the_last_step_is_judged_too(monkeypatch):
    monkeypatch.setattr("cloze.train.loop.AsyncValues", Slow)
    with raises(TrainingError, "step 3"):
        steps_of(new_state(objective=Poison({3: float("nan")})), 3)


@pytest.mark.parametrize("lags", [False, True])
def test_the_state_before_a_bad_step_is_saved(lags, tmp_path, monkeypatch):
    if lags:
        monkeypatch.setattr("cloze.train.loop.AsyncValues", Slow)
    state, sound = new_state(objective=Poison({3: float("nan")})), new_state()
    steps = training_steps(state, data(), budget=Budget(steps=8), schedule=Schedule(warmup=0.1))
    with pytest.raises(BadStepError) as stopped:
        list(save_steps(steps, lambda: save_training_state(state, tmp_path, {}), every=100))
    assert stopped.value.fix.endswith("--resume --set run.guard=skip")
    again = new_state()
    assert resume_training_state(again, tmp_path, {}) == tmp_path / "000001-step-2"
    steps_of(sound, 8, upto=2)
    same(memory_of(again), memory_of(sound))


def test_advice_that_was_taken_is_not_given_again():
    state = new_state(objective=Poison({n: float("nan") for n in range(1, 11)}), guard="skip")
    with pytest.warns(SkippedStepWarning), pytest.raises(BadStepError) as stopped:
        steps_of(state, 20)
    assert "run.guard" not in stopped.value.fix
    assert "learning rate" in stopped.value.fix


def test_a_bad_step_leaves_what_is_carried_from_step_to_step_as_it_was():
    """As an LSTM's state: one that is no number would spoil all steps that follow."""
    poison = Poison({3: float("nan")})

    def objective(model, batch, rng):
        terms = poison(model, batch, rng)
        model.memory.add_(terms["mlm"].detach() * 0 + 1)
        return terms

    model = tiny_bert()
    model.register_buffer("memory", torch.zeros(()))
    with pytest.warns(SkippedStepWarning, match="step 3"):
        steps_of(new_state(model, objective=objective, guard="skip"), 5)
    assert model.memory == 4 * 4, "four sound steps of four micro-batches"


def test_a_sound_run_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps_of(new_state(tiny_bert(0.1)), 5)


def test_many_samples_are_named_in_part():
    assert format_samples([np.arange(3), np.arange(3, 20)]).endswith("14, 15 and 4 more")
