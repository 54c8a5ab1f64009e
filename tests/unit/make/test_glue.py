"""`glue`: every task that is there, by its own metric, and none of them twice."""

import json
import signal

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.model import Model
from cloze.errors import ConfigError, FolderError, InputError
from cloze.make import glue as room
from cloze.make.glue import glue
from cloze.models.configs.bert import BertConfig
from cloze.tasks.evaluate import evaluate
from helpers import Watch, raises, tiny_tokenizer

FAST = ["run.device=cpu", "run.batch_size=8", "run.epochs=1.0", "optimizer.lr=5e-3"]
HEADERS = {
    "CoLA": None,
    "SST-2": "sentence\tlabel",
    "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tsentence1\tsentence2\tscore",
    "MNLI": "index\tsentence1\tsentence2\tgold_label",
    "QNLI": "index\tquestion\tsentence\tlabel",
}


def row(task, number, rng):
    a, b = (" ".join(rng.choice(list("abcdefgh"), rng.integers(1, 6))) for _ in range(2))
    yes = str(int("a" in a))
    return {
        "CoLA": f"gj04\t{yes}\t{'' if yes == '1' else '*'}\t{a}",
        "SST-2": f"{a}\t{yes}",
        "MRPC": f"{yes}\t1\t2\t{a}\t{b}",
        "STS-B": f"{number}\t{a}\t{b}\t{a.count('a') + 0.5}",
        "MNLI": f"{number}\t{a}\t{b}\t{('contradiction', 'neutral')[int(yes)]}",
        "QNLI": f"{number}\t{a}\t{b}\t{('entailment', 'not_entailment')[int(yes)]}",
    }[task]


def write(folder, task, name, count):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([*f"{task}{name}".encode()])
    head = [] if HEADERS[task] is None else [HEADERS[task]]
    lines = [*head, *(row(task, number, rng) for number in range(count))]
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glue")
    for task in ("CoLA", "MRPC", "STS-B"):
        write(folder / task, task, "train", 24)
        write(folder / task, task, "dev", 16)
    write(folder / "QNLI", "QNLI", "dev", 8)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    tokenizer = tiny_tokenizer()
    shape = {
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 32,
        "init_std": 0.1,
    }
    config = BertConfig(vocab_size=tokenizer.vocab_size, **shape)
    model = Model.from_config(config, tokenizer, rng=torch.Generator().manual_seed(0))
    return model.save(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def made(base, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "glue"
    return out, glue(base, data, out, settings=FAST)


def test_every_task_by_its_own_metric(made, data):
    out, table = made
    rows = {one.task: one for one in table.rows}
    assert list(rows) == ["CoLA", "MRPC", "STS-B", "QNLI"]  # the table's order
    assert list(rows["CoLA"].metrics) == ["matthews_correlation"]
    assert list(rows["MRPC"].metrics) == ["f1", "accuracy"]
    assert list(rows["STS-B"].metrics) == ["pearson", "spearman"]
    assert (rows["QNLI"].score, rows["QNLI"].note) == (None, "no training data")
    for name in ("CoLA", "MRPC", "STS-B"):
        one = rows[name]
        assert one.score == np.mean(list(one.metrics.values()))
        assert (one.train, one.dev, one.score_std, one.note) == (24, 16, None, "")
        assert one.seconds > 0
        model = cloze.load(out / name, device="cpu")
        columns = {"text_column": "4", "label_column": "2"} if name == "CoLA" else {}
        again = evaluate(model, data / name / "dev.tsv", **columns)
        for metric, value in one.metrics.items():
            assert again.scores[metric] == pytest.approx(value, abs=1e-6)
    known = [one.score for one in rows.values() if one.score is not None]
    assert table.score == pytest.approx(np.mean(known))


def test_a_finished_task_is_not_run_again(made, base, data, monkeypatch):
    out, table = made
    monkeypatch.setattr(room, "finetune_encoder", None)  # calling it would be an error
    again = glue(base, data, out, settings=FAST)
    assert [one.score for one in again.rows] == [one.score for one in table.rows]
    assert [one.note for one in again.rows] == ["trained before"] * 3 + ["no training data"]
    with raises(InputError, "settings"):
        glue(base, data, out, settings=[*FAST, "run.seed=7"])


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"settings": {}, "row": {"a": 1}}'])
def test_a_broken_row_is_told(base, data, tmp_path, content):
    path = tmp_path / "out" / "CoLA" / "glue.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with raises(FolderError, "glue.json", fix="--force"):
        glue(base, data, tmp_path / "out", tasks=["CoLA"], settings=FAST)


def test_a_task_that_was_begun_goes_on(base, data, tmp_path, monkeypatch):
    glue(base, data, tmp_path / "whole", tasks="cola", settings=FAST)
    whole = json.loads((tmp_path / "whole" / "CoLA" / "glue.json").read_text())
    glue(base, data, tmp_path / "cut", tasks=["CoLA"], settings=FAST)
    begun = tmp_path / "cut" / "CoLA" / "glue.json"
    begun.write_text(json.dumps(whole | {"row": None}))
    calls = []
    resume = room.resume_finetune
    spy = lambda *a, **k: calls.append(a) or resume(*a, **k)  # noqa: E731
    monkeypatch.setattr(room, "resume_finetune", spy)
    (row,) = glue(base, data, tmp_path / "cut", tasks=["CoLA"], settings=FAST).rows
    assert len(calls) == 1
    assert row.score == whole["row"]["score"]
    assert json.loads(begun.read_text())["row"]["score"] == row.score


def test_several_runs_go_on_too(base, data, tmp_path, monkeypatch):
    settings = [*FAST, "run.seeds=2"]
    (whole,) = glue(base, data, tmp_path / "whole", tasks=["CoLA"], settings=settings).rows

    def stopping(step):
        if step == 2:
            signal.raise_signal(signal.SIGTERM)

    watch = [Watch(step=stopping)]

    cut = glue(base, data, tmp_path / "cut", tasks=["CoLA"], settings=settings, callbacks=watch)
    assert (cut.rows, cut.stopped) == ((), "SIGTERM")
    monkeypatch.setattr(room, "finetune_encoder", None)  # calling it would be an error
    (row,) = glue(base, data, tmp_path / "cut", tasks=["CoLA"], settings=settings).rows
    assert (row.score, row.score_std) == (whole.score, whole.score_std)


def test_numbers_have_no_class_weights(base, data, tmp_path):
    settings = [*FAST, "loss.class_weights=balanced"]
    (row,) = glue(base, data, tmp_path, tasks=["STS-B"], settings=settings).rows
    assert row.score is not None


def test_stopped(base, data, tmp_path, monkeypatch):
    ended = type("Ended", (), {"stopped": "SIGTERM"})()
    monkeypatch.setattr(room, "finetune_encoder", lambda *_, **__: ended)
    table = glue(base, data, tmp_path, settings=FAST)
    assert (table.rows, table.stopped, table.score) == ((), "SIGTERM", None)
    assert json.loads((tmp_path / "CoLA" / "glue.json").read_text())["row"] is None


def test_seeds_and_a_limit(base, data, tmp_path):
    (row,) = glue(
        base, data, tmp_path, tasks=["mrpc"], settings=[*FAST, "run.seeds=2"], limit=12
    ).rows
    trials = json.loads((tmp_path / "MRPC" / "trials.json").read_text())
    scores = [np.mean([one["scores"][m] for m in ("f1", "accuracy")]) for one in trials]
    assert len(scores) == 2
    assert row.score == pytest.approx(np.mean(scores))
    assert row.score_std == pytest.approx(np.std(scores, ddof=1))
    assert (row.train, row.dev, row.note) == (12, 12, "only the first 12 examples of each file")
    assert glue(
        base, data, tmp_path, tasks=["MRPC"], settings=[*FAST, "run.seeds=2"], limit=12
    ).rows[0].note == ("trained before; only the first 12 examples of each file")


def test_mnli_is_scored_on_both_of_its_files(base, tmp_path):
    for name in ("train", "dev_matched", "dev_mismatched"):
        write(tmp_path / "data" / "mnli", "MNLI", name, 16)
    (row,) = glue(base, tmp_path / "data", settings=FAST).rows  # its model is thrown away
    assert row.task == "MNLI"
    assert list(row.metrics) == ["accuracy, dev_matched", "accuracy, dev_mismatched"]
    assert row.score == np.mean(list(row.metrics.values()))
    assert row.dev == 32


def test_a_folder_of_models_is_scored(made, data, tmp_path):
    out, table = made
    again = glue(out, data)
    for one, other in zip(again.rows[:3], table.rows[:3], strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-6)
        assert (one.train, one.dev) == (0, 16)
    assert again.rows[3].note == "no model"
    assert glue(out, data, limit=5).rows[0].dev == 5
    assert not (tmp_path / "runs").exists()


def test_mistakes(base, data, tmp_path):
    with raises(InputError, "folder"):
        glue(base, tmp_path / "nowhere")
    with raises(InputError, "GLUE"):
        glue(base, tmp_path)
    with raises(InputError, "GLUE", "COLLA", fix="CoLA"):
        glue(base, data, tasks=["COLLA"])
    with raises(InputError, "RTE"):
        glue(base, data, tasks=["rte"])
    with raises(ConfigError, "limit", "0"):
        glue(base, data, limit=0)
    (tmp_path / "out" / "CoLA").mkdir(parents=True)
    (tmp_path / "out" / "CoLA" / "mine.txt").write_text("precious")
    with raises(InputError, "exists"):
        glue(base, data, tmp_path / "out")


@pytest.mark.data
def test_the_real_files_are_read(base, data_dir):
    table = glue(base, data_dir / "glue", settings=FAST, limit=64)
    rows = {one.task: one for one in table.rows}
    assert list(rows) == ["CoLA", "SST-2", "MRPC", "STS-B", "QNLI", "RTE"]
    assert rows.pop("QNLI").note == "no training data"
    for one in rows.values():
        assert (one.train, one.dev) == (64, 64)
        assert one.score is not None
