"""Runs that fail half way: what they say, and that the advice works."""

import errno
import shutil

import pytest
from safetensors.torch import save_file

from cloze.errors import FolderError
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.complete import recipe
from cloze.make.resume import resume
from cloze.train import fit as fit_module
from cloze.train.fit import DivergedWarning
from cloze.train.guard import TrainingError
from helpers import Watch, raises
from smallruns import SMALL, metrics, stories


@pytest.fixture
def text(tmp_path):
    return stories(tmp_path)


def evaluated_steps(out):
    return [row["step"] for row in metrics(out) if row["kind"] == "eval"]


def test_a_run_whose_first_save_finds_the_disk_full_can_be_resumed(text, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("cloze.checkpoint.state.save_file", full)
        with raises(FolderError, "disk is full", fix="--resume"):
            pretrain(text, tmp_path / "m", recipe(settings=SMALL))
    assert resume(tmp_path / "m").steps == 6
    straight = pretrain(text, tmp_path / "straight", recipe(settings=SMALL)).folder
    weights = [(out / "model.safetensors").read_bytes() for out in (tmp_path / "m", straight)]
    assert weights[0] == weights[1]
    assert save_file is not full


@pytest.mark.parametrize("when", ["after the last evaluation", "before its row is written"])
def test_an_evaluation_is_in_the_metrics_once(text, tmp_path, monkeypatch, when):
    """A run that is killed and resumed reports each evaluation exactly once."""

    def kill(*_):
        raise KeyboardInterrupt

    settings = [*SMALL, "run.eval_every=3", "run.save_every=1"]
    by_time = [*(one for one in SMALL if "run.steps" not in one), "run.minutes=0.005"]
    with monkeypatch.context() as patch:
        if when == "after the last evaluation":
            # only afterwards it is known which step was the last
            settings = [*by_time, "run.eval_every=100000"]
            patch.setattr("cloze.checkpoint.model.Model.save_into", kill)
        else:
            patch.setattr("cloze.train.step_metrics.make_eval_row", kill)
        with pytest.raises(KeyboardInterrupt):
            pretrain(text, tmp_path / "m", recipe(settings=settings))
    last = resume(tmp_path / "m").steps
    expected = [last] if settings[0] == by_time[0] and "after" in when else [3, 6]
    assert evaluated_steps(tmp_path / "m") == expected
    resume(tmp_path / "m")  # there is nothing left to do
    assert evaluated_steps(tmp_path / "m") == expected


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_folder_that_disappears_stops_the_run(text, tmp_path, how):
    out = tmp_path / "m"

    def remove(step):
        if step == 2:
            out.rename(tmp_path / "gone")
            if how == "replaced":
                out.mkdir()

    settings = [*SMALL, "run.save_every=3"]
    with raises(FolderError, str(out), fix="--out"):
        pretrain(text, out, recipe(settings=settings), callbacks=[Watch(step=remove)])
    assert not out.exists() or not list(out.iterdir())


def test_a_loss_that_explodes_stops_the_run(text, tmp_path):
    settings = [*SMALL, "run.steps=40", "optimizer.lr=3", "schedule.warmup=0", "run.save_every=2"]
    with raises(TrainingError, "diverged", "loss", fix=("lr", "warmup", "clip_norm")):
        pretrain(text, tmp_path / "m", recipe(settings=settings))


def test_an_infinite_perplexity_is_reported(text, tmp_path, monkeypatch):
    monkeypatch.setattr("cloze.make.pretrain.job.perplexity", lambda _: float("inf"))
    with pytest.warns(DivergedWarning, match="perplexity.*inf"):
        result = pretrain(text, tmp_path / "m", recipe(settings=SMALL))
    assert result.steps == 6


def test_files_deleted_by_hand_do_not_matter(text, tmp_path):
    out = pretrain(text, tmp_path / "m", recipe(settings=SMALL)).folder
    shutil.rmtree(out / "state")
    assert fit_module.STATE == "state"
    assert resume(out).steps == 6
