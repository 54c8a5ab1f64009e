"""The display of training steps."""

from contextlib import ExitStack

import pytest
import torch

from cloze.cli.training import display_steps
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


def watched(source, *, quiet=False):
    meter = StepMetrics(Budget(steps=100), Progress())
    return display_steps(source, meter, before=ExitStack(), title="a run", quiet=quiet)


def test_steps_are_shown_in_place_of_the_bars_and_passed_on(capsys):
    bars, closed = ExitStack(), []
    bars.callback(lambda: closed.append(True))
    meter = StepMetrics(Budget(steps=100), Progress())
    passed = display_steps(steps(3), meter, before=bars, title="a run", quiet=False)
    assert [step.number for step in passed] == [1, 2, 3]
    assert closed
    out, err = capsys.readouterr()
    told = err.replace("\xa0", " ").splitlines()
    assert out == ""
    assert told[0].startswith("step 1 · 10 tokens · loss 2.000 · MLM accuracy 25.0 %")
    assert told[1] == "held out: step 2 · MLM loss 1.500"
    assert told[2].startswith("step 3 · 30 tokens · loss 0.667")


@pytest.mark.parametrize("ended", ["by the steps within", "by whom they are passed to"])
def test_what_is_still_on_its_way_at_the_end_is_shown(ended, capsys, monkeypatch):
    """A signal, a budget of minutes or early stopping: no step was told to be the last."""
    monkeypatch.setattr(AsyncValues, "is_ready", False)
    passed = watched(steps(3))
    for _ in range(3):
        next(passed)
    assert capsys.readouterr().err == ""
    if ended == "by the steps within":
        assert next(passed, None) is None
    else:
        passed.close()
    told = capsys.readouterr().err.splitlines()
    assert told[1].startswith("held out: step 2")
    assert told[-1].startswith("step 3")


def test_quiet_is_quiet(capsys, monkeypatch):
    monkeypatch.setattr(AsyncValues, "read", lambda _: pytest.fail("nobody asked for the numbers"))
    assert len(list(watched(steps(3), quiet=True))) == 3
    assert capsys.readouterr() == ("", "")
