"""What all runs have in common."""

import shutil
import sys

import pytest

from cloze.errors import FolderError, MissingExtraError
from cloze.make.finetune.dispatch import finetune
from cloze.make.pretrain.dispatch import pretrain
from cloze.make.recipe.files import list_recipes
from cloze.make.resume import resume
from cloze.make.sources import name_sources, resolve_model_name
from cloze.train.run_files import RECIPE
from helpers import raises
from translators import train_translator

BEGIN = {
    "pretrain": lambda out, **how: pretrain("none.txt", out, **how),
    "language": lambda out, **how: pretrain("none.txt", out, "lstm", **how),
    "finetune": lambda out, **how: finetune("classify", "none", "none.tsv", out, **how),
    "translate": lambda out, **how: train_translator("none.en", "none.de", out, **how),
}
AGAIN = {
    "laptop": resume,
    "lstm": resume,
    "finetune": resume,
    "transformer": resume,
}


@pytest.mark.parametrize("verb", BEGIN)
def test_a_missing_tensorboard_is_told_before_anything_is_read_or_overwritten(
    verb, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    kept = tmp_path / "metrics.jsonl"
    kept.write_text("of an earlier run")
    with raises(MissingExtraError, "TensorBoard", "cloze[tensorboard]"):
        BEGIN[verb](tmp_path, settings=["run.tensorboard=true"], force=True)
    assert kept.read_text() == "of an earlier run"
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("verb", ["language", "translate"])
def test_a_missing_vocabulary_is_told_before_anything_is_overwritten(verb, tmp_path):
    kept = tmp_path / "metrics.jsonl"
    kept.write_text("of an earlier run")
    with raises(FolderError, "nowhere"):
        BEGIN[verb](tmp_path, settings=['vocabulary.folder="nowhere"'], force=True)
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize("recipe", AGAIN)
def test_so_it_is_when_a_run_is_resumed(recipe, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    shutil.copy(list_recipes()[recipe], tmp_path / RECIPE)
    settings = ["run.tensorboard=true", *(["task=classify"] if recipe == "finetune" else [])]
    with raises(MissingExtraError, "TensorBoard", "cloze[tensorboard]"):
        AGAIN[recipe](tmp_path, settings=settings)


def test_places_are_named_so_that_they_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    assert name_sources(["a.txt", "b/../c*.txt", "-", [{"text": "x"}]]) == (
        *(str(tmp_path / name) for name in ("a.txt", "c*.txt")),
        *("-", "<objects in Python>"),
    )
    assert resolve_model_name("m") == str(tmp_path / "m")
    assert resolve_model_name("org/name") == "org/name", "a model of the hub"
