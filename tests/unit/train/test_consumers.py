import json
import os
import signal
import sys
import threading
from functools import partial

import pytest
import torch

from cloze.errors import ConfigError, MissingExtraError
from cloze.train.callbacks import CallbackList, TrainingRun
from cloze.train.consumers import (
    emit_rows,
    evaluate_steps,
    save_steps,
    stop_early,
    write_metrics,
)
from cloze.train.fit import stop_on_signals
from cloze.train.guard import TrainingError
from cloze.train.loggers import TensorBoard
from cloze.train.loop import evaluate_objective, training_steps
from cloze.train.run_files import truncate_metrics
from cloze.train.schedule import Budget, Schedule
from cloze.train.state import resume_training_state, save_training_state
from cloze.train.step import AsyncValues, Step
from helpers import raises
from training import data, new_state, packed, steps_of


def steps(numbers, *, seconds=1.0, last=None, norm=1.0):
    """Steps that nobody took."""
    for number in numbers:
        yield Step(
            number=number,
            tokens=number * 10,
            seconds=number * seconds,
            lr=0.1,
            is_last=number == last,
            sample_ids=[],
            names=("mlm",),
            numbers=AsyncValues(torch.tensor([2.0, norm, 0.0])),
        )


def told(step):
    """A row with the step's numbers."""
    row = {"kind": "train", "step": step.number, **step.means, "norm": step.grad_norm}
    return [row, *([{"kind": "eval", "step": step.number, **step.scores}] if step.scores else [])]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_evaluation_comes_every_so_often_and_at_the_end_of_the_budget():
    scores = iter([{"eval.mlm": 3.0}, {"eval.mlm": 2.0}, {"eval.mlm": 1.0}])
    seen = list(evaluate_steps(steps(range(1, 8), last=7), lambda: next(scores), every=3))
    assert [step.number for step in seen] == [1, 2, 3, 4, 5, 6, 7]
    assert {step.number: step.scores for step in seen if step.scores} == {
        3: {"eval.mlm": 3.0},
        6: {"eval.mlm": 2.0},
        7: {"eval.mlm": 1.0},
    }


def stopped_at(values, notes=None, **options):
    scores = ({"acc": value} for value in values)
    evaluated = evaluate_steps(steps(range(1, 99)), lambda: next(scores), every=1)
    return [
        step.number
        for step in stop_early(evaluated, {} if notes is None else notes, score="acc", **options)
    ]


def test_early_stopping_waits_for_its_patience_since_the_best():
    assert stopped_at([3.0, 2.0, 2.5, 2.2, 1.9, 2.0, 2.0, 2.0], patience=3)[-1] == 8
    assert stopped_at([0.1, 0.2, 0.2, 0.1], better="higher", patience=2)[-1] == 4
    nan = float("nan")
    assert stopped_at([nan, 1.0, nan, nan], patience=2)[-1] == 4


def test_early_stopping_remembers_over_a_resume():
    notes: dict = {}
    early = stop_early(
        evaluate_steps(steps([1, 2]), iter([{"acc": 1.0}, {"acc": 2.0}]).__next__, every=1),
        notes,
        score="acc",
        patience=2,
    )
    assert len(list(early)) == 2
    notes = json.loads(json.dumps(notes))
    assert notes["early_stopping"] == {"best": 1.0, "step": 1, "since": 1}
    assert stopped_at([1.5, 0.1], notes, patience=2) == [1]


def test_early_stopping_by_a_score_that_is_not_there():
    evaluated = evaluate_steps(steps([1]), lambda: {"eval.mlm": 1.0}, every=1)
    with raises(ConfigError, "eval.mln"):
        list(stop_early(evaluated, {}, score="eval.mln"))


def saved_at(source, **options):
    seen, now = [], [0]

    def following():
        for step in source:
            now[0] = step.number
            yield step

    for _ in save_steps(following(), lambda: seen.append(now[0]), **options):
        pass
    return seen


def test_saving_comes_every_so_often_and_at_the_end():
    assert saved_at(steps(range(1, 8)), every=3) == [3, 6, 7]
    assert saved_at(steps(range(1, 7)), every=3) == [3, 6], "not twice"
    assert saved_at(steps(range(1, 10), seconds=25.0), minutes=1) == [4, 7, 9]
    assert saved_at(steps(range(1, 4))) == [3]
    assert saved_at(steps([])) == []


def test_an_error_is_no_end_to_save():
    def failing():
        yield from steps([1, 2])
        raise TrainingError("step 3 went wrong", fix="-")

    seen = []
    with pytest.raises(TrainingError):
        list(save_steps(failing(), lambda: seen.append(1), every=100))
    assert seen == []


def test_what_stops_inside_is_saved_outside():
    notes: dict = {}
    evaluated = evaluate_steps(steps(range(1, 99)), lambda: {"acc": 1.0}, every=1)
    assert saved_at(stop_early(evaluated, notes, score="acc", patience=2)) == [3]


def test_metrics_are_one_object_to_a_line(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    list(write_metrics(steps(range(1, 4), norm=float("nan")), path, rows=told))
    assert lines(path) == [
        {"kind": "train", "step": n, "mlm": 2.0, "norm": None} for n in (1, 2, 3)
    ]


def test_metrics_are_on_disk_as_soon_as_they_are_known(tmp_path):
    path = tmp_path / "metrics.jsonl"
    writer = write_metrics(steps(range(1, 99)), path, rows=told)
    for expected in (1, 2, 3):
        next(writer)
        assert len(lines(path)) == expected
    writer.close()
    assert len(lines(path)) == 3


def test_metrics_do_not_wait_for_a_device(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setattr(AsyncValues, "is_ready", False)
    writer = write_metrics(steps(range(1, 99)), path, rows=told)
    next(writer), next(writer)
    assert lines(path) == []
    monkeypatch.setattr(AsyncValues, "is_ready", True)
    next(writer)
    assert [line["step"] for line in lines(path)] == [1, 2, 3]
    monkeypatch.setattr(AsyncValues, "is_ready", False)
    next(writer)
    writer.close()
    assert [line["step"] for line in lines(path)] == [1, 2, 3, 4], "at the end all are waited for"


def test_metrics_of_some_steps_and_of_each_evaluation(tmp_path):
    path = tmp_path / "metrics.jsonl"
    evaluated = evaluate_steps(steps(range(1, 10)), lambda: {"eval.mlm": 1.0}, every=5)
    list(write_metrics(evaluated, path, rows=told, every=4))
    assert [(line["step"], line["kind"]) for line in lines(path)] == [
        (4, "train"), (5, "train"), (5, "eval"), (8, "train"), (9, "train"),
    ]  # fmt: skip


@pytest.mark.parametrize("arrived", [True, False])
def test_the_last_step_is_told_whatever_ended_the_run(arrived, tmp_path, monkeypatch):
    """A signal, an error outside, the budget: once, and also with numbers that come late."""
    monkeypatch.setattr(AsyncValues, "is_ready", arrived)
    path = tmp_path / "metrics.jsonl"
    writer = write_metrics(steps(range(1, 99)), path, rows=told, every=10)
    for _ in range(7):
        next(writer)
    writer.close()
    assert [line["step"] for line in lines(path)] == [7]
    list(write_metrics(steps(range(8, 21)), path, rows=told, every=10, after=7))
    assert [line["step"] for line in lines(path)] == [7, 10, 20]


def test_metrics_go_on_where_the_state_does(tmp_path):
    """The run was killed at step 6, in the middle of a line, and goes on after step 4."""
    path = tmp_path / "metrics.jsonl"
    list(write_metrics(steps(range(1, 7)), path, rows=told))
    with path.open("a") as file:
        file.write('{"step": 7, "tok')
    list(write_metrics(steps(range(5, 8)), path, rows=told, after=4))
    assert [line["step"] for line in lines(path)] == [1, 2, 3, 4, 5, 6, 7]
    assert [name.name for name in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_tensorboard_gets_the_same_numbers_without_waiting(tmp_path, monkeypatch):
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    row = {"kind": "train", "lr": 0.5, "mlm_loss": 2.0, "tokens_per_second": None}

    def sitting(numbers, after=0):
        writer = TensorBoard(tmp_path)
        writer.on_train_begin(TrainingRun(tmp_path, {}, step=after))
        taken = emit_rows(
            evaluate_steps(steps(numbers), lambda: {"loss": 1.5}, every=4),
            partial(CallbackList([writer]).report_row, writer),
            rows=lambda step: [row | {"step": step.number}, *told(step)[1:]],
            every=2,
        )
        monkeypatch.setattr(AsyncValues, "read", lambda _: pytest.fail("it waited"))
        monkeypatch.setattr(AsyncValues, "is_ready", False)
        passed = [next(taken).number for _ in numbers]
        monkeypatch.undo()
        taken.close()
        writer.close()
        return passed

    assert sitting(range(1, 7)) == [1, 2, 3, 4, 5, 6]
    sitting(range(5, 9), after=4)  # killed at step 6, it goes on after step 4
    found = board.EventAccumulator(str(tmp_path)).Reload()
    curves = {
        tag: [(point.step, point.value) for point in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }
    assert curves == {
        "train/lr": [(n, 0.5) for n in (2, 4, 6, 8)],
        "train/mlm_loss": [(n, 2.0) for n in (2, 4, 6, 8)],
        "eval/loss": [(4, 1.5), (8, 1.5)],
    }


def test_tensorboard_that_is_missing_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with raises(MissingExtraError, "TensorBoard", fix="cloze[tensorboard]"):
        TensorBoard()


def test_rewinding_leaves_a_sound_file_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    list(write_metrics(steps(range(1, 4)), path, rows=told))
    before = path.stat()
    truncate_metrics(path, 3)
    assert path.stat().st_ino == before.st_ino
    path.write_text('nonsense\n{"step": 1}\n[]\n')
    truncate_metrics(path, 3)
    assert path.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_after_the_step_in_hand_and_saves(tmp_path, number):
    state = new_state()
    with stop_on_signals() as stop:
        taken = training_steps(
            state, data(), budget=Budget(steps=50), schedule=Schedule(), stop=stop
        )
        for step in save_steps(taken, lambda: save_training_state(state, tmp_path, {})):
            if step.number == 5:
                os.kill(os.getpid(), number)
        assert stop.reason == number.name
    back = new_state()
    resume_training_state(back, tmp_path, {})
    assert back.progress.step == 5
    assert [step.number for step in steps_of(back, 7)] == [6, 7]


def test_a_second_ctrl_c_aborts():
    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_are_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_on_signals() as stop:
        assert not stop()
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_outside_the_main_thread_one_can_still_ask():
    seen = []

    def work():
        with stop_on_signals() as stop:
            seen.append(stop())
            stop.request("the button")
            seen.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False, True]


def test_a_whole_run(tmp_path):
    """All of them around one loop: evaluated, saved, written, resumed."""
    held_out = [packed(range(1000, 1006))]

    def sitting(upto):
        state = new_state(rate=5e-3)
        resume_training_state(state, tmp_path / "state", {"rate": 5e-3})
        after = state.progress.step
        taken = training_steps(state, data(), budget=Budget(steps=20), schedule=Schedule())
        taken = evaluate_steps(
            taken,
            lambda: {f"eval.{k}": v for k, v in evaluate_objective(state, held_out).items()},
            every=5,
        )
        taken = stop_early(taken, state.notes, score="eval.mlm", patience=99)
        taken = save_steps(
            taken, lambda: save_training_state(state, tmp_path / "state", {"rate": 5e-3}), every=4
        )
        for step in write_metrics(taken, tmp_path / "metrics.jsonl", rows=told, after=after):
            if step.number == upto:
                break
        return state

    sitting(upto=11)  # the last save was after step 8
    state = sitting(upto=None)
    written = lines(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in written if line["kind"] == "train"] == list(range(1, 21))
    assert [line["step"] for line in written if "eval.mlm" in line] == [5, 10, 15, 20]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        "000004-step-16",
        "000005-step-20",
    ]
    assert state.notes["early_stopping"]["step"] in {5, 10, 15, 20}
