"""A run that is judged as it goes: what it keeps, and what it goes on from."""

import math

import pytest
import torch

from cloze.make.recipe.run import SelectingRun
from cloze.train.callbacks import CallbackList
from cloze.train.fit import DivergedWarning, TrainingJob, fit, one_batch_each
from cloze.train.guard import BadStepError
from cloze.train.schedule import Budget, Schedule
from helpers import raises
from training import micro_batches, new_state


def go(out, *, evaluate, steps=2):
    return fit(
        TrainingJob(
            out=out,
            state=new_state(),
            batches=one_batch_each(lambda index: micro_batches(index)[0]),
            fingerprint={},
            budget=Budget(steps=steps),
            schedule=Schedule(),
            options=SelectingRun(steps=steps, save_every=1),
            callbacks=CallbackList(),
            evaluate=evaluate,
            save_model=lambda: None,
        )
    )


def test_scores_that_are_no_numbers_are_saved_and_found_again(tmp_path):
    """A correlation may not be defined, and a perplexity be larger than all numbers."""
    judged = {"score": math.nan, "perplexity": math.inf}
    with pytest.warns(DivergedWarning, match="perplexity"):
        assert math.isnan(go(tmp_path, evaluate=lambda: judged).score)
    again = go(tmp_path, evaluate=lambda: judged)  # there is nothing left to do
    assert math.isnan(again.score)
    assert math.isnan(again.scores["perplexity"])
    assert again.best_step == 2


def test_a_bad_step_leaves_a_state_to_go_on_from(tmp_path, monkeypatch):
    def second(means, norm, recent, *, usual):
        return torch.tensor(bool(recent.isfinite().any()))

    with monkeypatch.context() as patch:
        patch.setattr("cloze.train.gradients.is_bad_step", second)
        with raises(BadStepError, "step 2"):
            go(tmp_path, evaluate=None)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["000002-step-1"]
    assert go(tmp_path, evaluate=None).best_step == 2
