"""The display of a run: bars and log lines while it is prepared, then its steps."""

from functools import partial
from pathlib import Path

import pytest
import torch

from cloze.report.display import open_callbacks
from cloze.train.callbacks import TrainingRun
from cloze.train.consumers import emit_rows
from cloze.train.schedule import Budget, Progress
from cloze.train.step import AsyncValues, Step
from cloze.train.step_metrics import StepMetrics


def steps(count):
    """Steps of a run that goes on: none of them is known to be the last."""
    for number in range(1, count + 1):
        yield Step(
            number=number,
            tokens=10 * number,
            seconds=float(number),
            lr=0.1,
            is_last=False,
            sample_ids=[],
            names=("mlm", "mlm.accuracy"),
            numbers=AsyncValues(torch.tensor([2.0 / number, 0.25, 1.0, 0.0])),
            scores={"mlm_loss": 1.5} if number == 2 else {},
        )


def watched(source, *, progress=True):
    """The steps, as `fit` passes them to the display."""
    meter = StepMetrics(Budget(steps=100), Progress())
    with open_callbacks(progress, ()) as callbacks:
        callbacks.on_log("ready")
        callbacks.on_train_begin(TrainingRun(Path("run"), {}))
        for callback in callbacks:
            emit = partial(callbacks.report_row, callback)
            source = emit_rows(source, emit, rows=meter.rows, every=callback.every)
        yield from source


def test_steps_are_shown_and_passed_on(capsys):
    assert [step.number for step in watched(steps(3))] == [1, 2, 3]
    out, err = capsys.readouterr()
    told = err.replace("\xa0", " ").splitlines()
    assert out == ""
    assert told[0] == "ready"
    assert told[1].startswith("step 1 · 10 tokens · loss 2.000 · MLM accuracy 25.0 %")
    assert told[2] == "held out: step 2 · MLM loss 1.500"
    assert told[3].startswith("step 3 · 30 tokens · loss 0.667")


@pytest.mark.parametrize("ended", ["by the steps within", "by whom they are passed to"])
def test_what_is_still_on_its_way_at_the_end_is_shown(ended, capsys, monkeypatch):
    """A signal, a budget of minutes or early stopping: no step was told to be the last."""
    monkeypatch.setattr(AsyncValues, "is_ready", False)
    passed = watched(steps(3))
    for _ in range(3):
        next(passed)
    assert capsys.readouterr().err == "ready\n"
    if ended == "by the steps within":
        assert next(passed, None) is None
    else:
        passed.close()
    told = capsys.readouterr().err.splitlines()
    assert told[1].startswith("held out: step 2")
    assert told[-1].startswith("step 3")


def test_quiet_is_quiet(capsys, monkeypatch):
    monkeypatch.setattr(AsyncValues, "read", lambda _: pytest.fail("nobody asked for the numbers"))
    assert len(list(watched(steps(3), progress=False))) == 3
    assert capsys.readouterr() == ("", "")
