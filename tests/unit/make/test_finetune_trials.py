"""`finetune` with several runs: seeds, the search, and what a signal leaves of them."""

import json
import shutil
import signal

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import ConfigError, FolderError
from cloze.make.finetune.dispatch import finetune
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.resume import resume
from cloze.models.configs.bert import BertConfig
from helpers import Watch, files_of, raises
from tunings import FAST, body, texts, tune, weights

QUICK = [one for one in FAST if one.startswith(("run.device", "transfer."))]


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


def test_seeds_give_mean_and_deviation(base, tmp_path):
    ended = tune(base, tmp_path / "m", "run.epochs=1.0", "run.seeds=3")
    assert [trial.name for trial in ended.trials] == ["seed-0", "seed-1", "seed-2"]
    scores = [trial.score for trial in ended.trials]
    assert ended.mean_score == pytest.approx(np.mean(scores))
    assert ended.score_std == pytest.approx(np.std(scores, ddof=1))
    assert ended.score == max(scores)
    assert ended.num_trials == 3
    assert cloze.load(tmp_path / "m").labels == ("no", "yes")
    assert len(json.loads((tmp_path / "m" / "trials.json").read_text())) == 3
    kept = {"recipe.toml", "metrics.jsonl", "report.html", "data.json", "examples.json"}
    for trial in ended.trials:  # how they went, and nothing that looks like a model
        assert files_of(tmp_path / "m" / trial.name) == kept


@pytest.mark.parametrize("setting", ["transfer.kind=full", "transfer.kind=features"])
def test_a_model_that_is_open_stays_as_it_was(base, tmp_path, setting):
    """Its weights are mapped to the file, which is not to be written over."""
    out, settings = tmp_path / "m", ["run.seeds=2", setting]
    tune(base, out, "run.steps=3", *settings)
    held = cloze.load(out, device="cpu")
    before = cloze.classify(held, "b a c").scores
    tune(base, out, "run.steps=9", "run.seed=5", *settings, train=texts(50, 2), force=True)
    assert cloze.classify(held, "b a c").scores == before
    assert cloze.classify(cloze.load(out, device="cpu"), "b a c").scores != before
    assert not list(out.glob("seed-*/*.safetensors"))


@pytest.fixture
def grid(monkeypatch):
    monkeypatch.setattr("cloze.make.finetune.trials.SEARCH_LRS", (1e-6, 5e-3))
    monkeypatch.setattr("cloze.make.finetune.trials.SEARCH_BATCH_SIZES", (8,))
    monkeypatch.setattr("cloze.make.finetune.trials.SEARCH_EPOCHS", (1, 2))


def search(base, out, *settings):
    given = {"dev": texts(40, seed=1), "settings": [*QUICK, "run.search=true", *settings]}
    return finetune("classify", base, texts(160), out, **given)


def test_the_search_takes_the_best_of_the_grid(base, tmp_path, grid):
    ended = search(base, tmp_path / "m")
    assert len(ended.trials) == ended.num_trials == 4
    best = max(ended.trials, key=lambda trial: trial.score)
    assert best.settings["lr"] == 5e-3
    assert ended.score == best.score
    assert cloze.load(tmp_path / "m").task.name == "classify"
    left = list((tmp_path / "m").glob("lr-*/model.safetensors"))
    assert not left  # the weights of the others are not kept


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("optimizer.lr=1e-3", ["lr-0.001-batch-8-epochs-1", "lr-0.001-batch-8-epochs-2"]),
        ("run.steps=2", ["lr-1e-06-batch-8", "lr-0.005-batch-8"]),
        ("run.epochs=0.5", ["lr-1e-06-batch-8", "lr-0.005-batch-8"]),
    ],
)
def test_what_is_given_is_not_searched(base, tmp_path, grid, setting, names):
    ended = search(base, tmp_path / "m", setting)
    assert [trial.name for trial in ended.trials] == names
    written = complete_finetuning(tmp_path / "m" / names[0] / "recipe.toml")
    table, _, value = setting.partition("=")
    room, _, name = table.partition(".")
    assert getattr(getattr(written, room), name) == float(value)
    if room == "run":
        assert (ended.steps, written.run.fixed) == ({"run.steps": 2, "run.epochs": 10}[table], ())


def test_a_batch_that_is_given_is_not_searched(base, tmp_path, grid):
    ended = search(base, tmp_path / "m", "run.batch_size=16", "run.steps=1")
    assert {trial.settings["batch_size"] for trial in ended.trials} == {16}
    with raises(ConfigError, "search"):
        search(base, tmp_path / "n", "run.batch_size=16", "run.steps=1", "optimizer.lr=1e-3")


def test_flags_fix_the_search_as_settings_do():
    made = complete_finetuning(options={"search": True, "minutes": 1.0, "lr": 1e-3})
    assert made.run.fixed == ("epochs", "lr")
    assert complete_finetuning(made, settings=["run.batch_size=4"]).run.fixed == (
        "batch_size",
        "epochs",
        "lr",
    )
    assert complete_finetuning(settings=["run.batch_size=4"]).run.fixed == ()


# Stopped by a signal


def stopping(*at):
    """A signal after so many steps of all runs."""
    taken = 0

    def count(_):
        nonlocal taken
        taken += 1
        if taken in at:
            signal.raise_signal(signal.SIGTERM)

    return [Watch(step=count)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    body(BertConfig).save(folder / "base")
    rows = "".join(f"{one.text}\t{one.label}\n" for one in texts(80))
    (folder / "train.tsv").write_text(f"text\tlabel\n{rows}")
    return {
        "task": "classify",
        "model": folder / "base",
        "train": folder / "train.tsv",
        "dev": folder / "train.tsv",
    }


SEEDS = [*FAST, "run.epochs=2.0", "run.seeds=3"]  # 10 steps to an epoch, 20 to a run


@pytest.fixture(scope="module")
def straight(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "straight"
    return finetune(**files, out=out, settings=SEEDS)


@pytest.mark.parametrize(("at", "finished"), [(3, 0), (15, 0), (27, 1), (59, 2)])
def test_a_signal_ends_all_runs(files, straight, tmp_path, at, finished):
    out = tmp_path / "m"
    ended = finetune(**files, out=out, settings=SEEDS, callbacks=stopping(at))
    assert (ended.stopped, len(ended.trials), ended.num_trials) == ("SIGTERM", finished, 3)
    scores = [trial.score for trial in straight.trials[:finished]]
    assert ended.mean_score == (pytest.approx(np.mean(scores)) if scores else None)
    assert not (out / f"seed-{finished + 1}").exists() or finished == 2
    assert cloze.load(out).labels == ("no", "yes")  # what there is can be used

    again = resume(out, callbacks=stopping())
    assert (again.stopped, again.num_trials) == (None, 3)
    assert [(t.name, t.score) for t in again.trials] == [(t.name, t.score) for t in straight.trials]
    assert again.score == straight.score
    ours, theirs = (weights(cloze.load(folder)) for folder in (out, straight.folder))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not list(out.glob("seed-*/model.safetensors"))


def test_a_finished_run_is_not_repeated(files, straight):
    def no_step(_):
        pytest.fail("it should not have begun")

    again = resume(straight.folder, callbacks=[Watch(step=no_step)])
    assert (again.score, again.steps, again.trials) == (
        straight.score,
        straight.steps,
        straight.trials,
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [("[", ("trials.json", "JSON")), ("[3]", "trials.json"), ('[{"name": "x"}]', "trials.json")],
)
def test_a_broken_list_of_runs_is_told(files, straight, tmp_path, content, said):
    out = shutil.copytree(straight.folder, tmp_path / "m")
    (out / "trials.json").write_text(content)
    with raises(FolderError, said, fix="--force"):
        resume(out)


def test_a_stopped_search_goes_on(files, tmp_path, grid):
    settings = [*QUICK, "run.search=true", "run.seeds=2", "run.steps=4"]
    ended = finetune(**files, out=tmp_path / "m", settings=settings, callbacks=stopping(6))
    assert (ended.stopped, len(ended.trials), ended.num_trials) == ("SIGTERM", 1, 4)
    assert ended.mean_score is None  # of no seed
    ended = resume(tmp_path / "m", callbacks=stopping(3))  # in the first seed
    assert (ended.stopped, len(ended.trials)) == ("SIGTERM", 2)
    ended = resume(tmp_path / "m")
    names = ["lr-1e-06-batch-8", "lr-0.005-batch-8", "seed-0", "seed-1"]
    assert [trial.name for trial in ended.trials] == names
    assert {trial.settings["lr"] for trial in ended.trials[2:]} == {
        max(ended.trials[:2], key=lambda trial: trial.score).settings["lr"]
    }
    assert not list((tmp_path / "m").glob("*-*/model.safetensors"))


def test_another_begins_anew_where_one_was_stopped(files, straight, tmp_path):
    finetune(**files, out=tmp_path / "m", settings=SEEDS, callbacks=stopping(27))
    anew = finetune(**files, out=tmp_path / "m", settings=SEEDS, force=True, callbacks=stopping())
    assert [t.score for t in anew.trials] == [t.score for t in straight.trials]
    rows = (tmp_path / "m" / "seed-1" / "metrics.jsonl").read_text().splitlines()
    steps = [row["step"] for row in map(json.loads, rows) if row["kind"] == "train"]
    assert steps == list(range(1, 21))
