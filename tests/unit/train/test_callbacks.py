"""Callbacks: what they are told, how they stop a run, and what an error in one of them does."""

# ruff: noqa: ARG002

import json
import sys
from pathlib import Path

import pytest

import cloze
from cloze.callbacks import TensorBoard, WandB
from cloze.errors import ConfigError, MissingExtraError
from cloze.models.configs.bert import BertConfig
from cloze.train.result import RunResult
from helpers import raises
from tunings import body, texts

# 10 steps to an epoch
FAST = ["run.epochs=2.0", "run.log_every=1", "run.batch_size=8", "optimizer.lr=5e-3"]
TEXT = ["the cat sat on the mat", "a dog ran home"] * 20


class Record(cloze.Callback):
    """Notes every call."""

    def __init__(self):
        self.calls, self.metrics, self.messages = [], [], []
        self.closed = 0

    def on_train_begin(self, run):
        self.run = run
        self.calls.append("begin")

    def on_log(self, message):
        self.calls.append("log")
        self.messages.append(message)

    def on_progress(self, stage, done, total):
        self.calls.append("progress")

    def on_step(self, metrics):
        self.calls.append("step")
        self.metrics.append(dict(metrics))

    def on_evaluate(self, step, scores):
        self.calls.append(("evaluate", step, scores.get("accuracy")))

    def on_save(self, folder):
        assert Path(folder).is_dir()
        self.calls.append(("save", Path(folder).name))

    def on_train_end(self, result):
        assert (result.folder / "report.html").is_file() or result.steps == 0
        self.calls.append("end")
        self.result = result

    def close(self):
        self.closed += 1


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    body(BertConfig).save(folder / "base")
    rows = "".join(f"{one.text}\t{one.label}\n" for one in texts(80))
    (folder / "train.tsv").write_text(f"text\tlabel\n{rows}")
    return {
        "task": "classify",
        "model": folder / "base",
        "train": folder / "train.tsv",
        "dev": folder / "train.tsv",
        "settings": FAST,
        "progress": False,
    }


def test_a_run_tells_what_it_does(files, tmp_path):
    seen = Record()
    result = cloze.finetune(**files, out=tmp_path / "m", callbacks=[seen])
    assert (seen.run.folder, seen.run.settings["optimizer"]["lr"]) == (tmp_path / "m", 5e-3)
    assert [row["step"] for row in seen.metrics] == list(range(1, 21))
    assert seen.metrics[0].keys() >= {"loss", "lr", "tokens_per_second", "grad_norm"}
    written = (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, written) if row["kind"] == "train"]
    assert losses == [row["loss"] for row in seen.metrics]
    evaluated = [call for call in seen.calls if call[0] == "evaluate"]
    assert [step for _, step, _ in evaluated] == [10, 20]
    assert max(score for *_, score in evaluated) == result.score
    assert ("save", "m") in seen.calls  # the model
    assert any(call[0] == "save" and "step-20" in call[1] for call in seen.calls)  # the state
    assert (seen.calls[0], seen.calls[-1], seen.closed) == ("log", "end", 1)
    assert (seen.result.score, seen.result.task) == (result.score, "classify")
    assert 0.5 <= result.scores["majority_baseline"] < 1
    assert any("warning" in line and "20 steps" in line for line in seen.messages)


def test_a_result_that_is_no_better_than_its_baseline_says_so():
    scores = {"accuracy": 0.5, "majority_baseline": 0.5}
    result = RunResult(folder=Path("m"), scores=scores)
    assert "majority baseline" in result.to_dict()["note"]
    assert "note" not in RunResult(folder=Path("m"), scores={"accuracy": 0.5}).to_dict()


def test_every_so_many_steps(files, tmp_path):
    class Seldom(Record):
        every = 7

    seen = Seldom()
    cloze.finetune(**files, out=tmp_path / "m", callbacks=[seen])
    assert [row["step"] for row in seen.metrics] == [7, 10, 14, 20]  # and with each evaluation


def test_a_callback_stops_a_run_which_can_be_resumed(files, tmp_path):
    class Stop(Record):
        def on_step(self, metrics):
            super().on_step(metrics)
            if metrics["step"] == 13:
                self.run.request_stop()

    stopped = cloze.finetune(**files, out=tmp_path / "m", callbacks=[Stop()])
    assert (stopped.steps, stopped.stopped, stopped.best_step) == (13, "callback", 10)
    seen = Record()
    resumed = cloze.resume(tmp_path / "m", progress=False, callbacks=[seen])
    assert (seen.run.step, resumed.steps, resumed.stopped) == (13, 20, None)
    straight = cloze.finetune(**files, out=tmp_path / "straight")
    assert (resumed.score, resumed.scores) == (straight.score, straight.scores)


@pytest.mark.parametrize("method", ["on_train_begin", "on_step", "on_evaluate", "on_save"])
def test_an_error_in_a_callback_saves_the_state_and_is_raised(method, files, tmp_path):
    class Broken(Record):
        pass

    def fail(self, *arguments):
        if method != "on_step" or arguments[0]["step"] == 4:
            raise ZeroDivisionError("mine")

    setattr(Broken, method, fail)
    broken, other = Broken(), Record()
    with pytest.raises(ZeroDivisionError, match="mine") as error:
        cloze.finetune(**files, out=tmp_path / "m", callbacks=[broken, other])
    notes = " ".join(error.value.__notes__)
    assert f"Broken.{method}" in notes
    assert f"cloze.resume({str(tmp_path / 'm')!r})" in notes
    assert "end" not in other.calls
    assert (broken.closed, other.closed) == (1, 1)
    resumed = cloze.resume(tmp_path / "m", progress=False, callbacks=[other])
    assert resumed.steps == 20
    assert other.run.step == {"on_train_begin": 0, "on_step": 4}.get(method, 10)


def test_an_error_before_and_after_training_is_raised_at_once(files, tmp_path):
    class Early(Record):
        def on_log(self, message):
            raise ZeroDivisionError

    class Late(Record):
        def on_train_end(self, result):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cloze.finetune(**files, out=tmp_path / "m", callbacks=[Early()])
    with pytest.raises(ZeroDivisionError):
        cloze.finetune(**files, out=tmp_path / "m", callbacks=[Late()], force=True)
    assert cloze.load(tmp_path / "m").labels == ("no", "yes")


@pytest.mark.parametrize("family", ["ngram", "lstm"])
def test_other_families_call_them_too(family, tmp_path):
    seen = Record()
    options = {} if family == "ngram" else {"steps": 2, "batch_size": 4}
    cloze.pretrain(
        [TEXT], tmp_path / "m", family=family, callbacks=[seen], progress=False, **options
    )
    assert (seen.calls.count("begin"), seen.calls.count("end")) == (1, 1)
    assert seen.calls.count("step") == options.get("steps", 0)


def test_learning_a_vocabulary_reports_its_progress(monkeypatch):
    monkeypatch.setattr("cloze.text.counting._REPORT_EVERY", 10)
    seen = Record()
    cloze.vocabulary([TEXT], size=60, progress=False, callbacks=[seen])
    assert {*seen.calls} == {"progress"}


def test_progress_can_be_silenced(files, tmp_path, capsys):
    cloze.finetune(**files, out=tmp_path / "a")
    assert capsys.readouterr() == ("", "")
    cloze.finetune(**{**files, "progress": True}, out=tmp_path / "b")
    shown = capsys.readouterr()
    assert shown.out == ""  # no terminal: plain lines on standard error
    assert "80 training examples" in shown.err
    assert "held out: step 10" in shown.err


def test_other_objects_are_no_callbacks(files, tmp_path):
    with raises(ConfigError, "print", fix="cloze.Callback"):
        cloze.finetune(**files, out=tmp_path / "m", callbacks=[print])


# TensorBoard and Weights & Biases


def test_tensorboard_writes_where_it_is_told(files, tmp_path):
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    cloze.finetune(**files, out=tmp_path / "m", callbacks=[TensorBoard(tmp_path / "logs")])
    found = board.EventAccumulator(str(tmp_path / "logs")).Reload()
    assert [point.step for point in found.Scalars("eval/accuracy")] == [10, 20]
    assert "train/lr" in found.Tags()["scalars"]
    assert not (tmp_path / "m" / "tensorboard").exists()


def test_weights_and_biases_offline(files, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logger = WandB(
        project="films", dir=str(tmp_path), settings=wandb.Settings(x_disable_stats=True)
    )
    cloze.finetune(**files, out=tmp_path / "m", callbacks=[logger])
    wandb.teardown()  # its process ends, and everything is written
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    written = file.read_bytes()
    for name in ("films", "optimizer", "train/loss", "train/lr", "eval/accuracy", "f1_macro"):
        assert name.encode() in written, name


def test_a_missing_wandb_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with raises(MissingExtraError, "Weights & Biases", fix="cloze[wandb]"):
        WandB()


def test_a_single_callback_needs_no_list(files, tmp_path):
    record = Record()
    cloze.finetune(**files, out=tmp_path / "m", callbacks=record)
    assert record.calls[-1] == "end"
    assert record.closed == 1
    with raises(ConfigError, "Record", fix="cloze.Callback"):
        cloze.finetune(**files, out=tmp_path / "n", callbacks=Record)


def test_a_method_that_is_never_called_is_an_error():
    with raises(ConfigError, "Late.on_step_end", fix="on_step"):
        type("Late", (cloze.Callback,), {"on_step_end": print})
    with raises(ConfigError, "Far.on_xyz", fix=("on_log", "on_train_end")):
        type("Far", (Record,), {"on_xyz": print})
    own = type("Own", (Record,), {"on_step": print, "only": print})
    assert issubclass(own, cloze.Callback)
