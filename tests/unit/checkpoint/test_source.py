"""Find models by path, built-in name or hub name."""

from pathlib import Path

import numpy as np
import pytest

import cloze
from cloze.checkpoint import source
from cloze.errors import FolderError
from helpers import raises, tiny_model

ROOM = 24_000_000  # bytes of a built-in model's folder
ROOM_OF_ALL = 39_000_000  # of all of them: a wheel, which is compressed, has less than 40 MB


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where built-in models lie, for once; the tests stand beside it."""
    monkeypatch.setattr(source, "BUILTIN", tmp_path / "builtin")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "builtin"


@pytest.fixture
def stand_in(place):
    return tiny_model("mlm").save(place / "cloze-en")


def test_every_function_accepts_the_name_of_a_built_in_model(stand_in):
    assert cloze.builtin() == {"cloze-en": stand_in}
    model = cloze.load("cloze-en")
    assert model.task_heads == ("mlm",)
    assert cloze.fill(model, "the [MASK] sat", top=1).masks[0].predictions
    assert cloze.info("cloze-en").folder == str(stand_in)
    assert cloze.tokenize("cloze-en", "the cat").tokens == ["[CLS]", "the", "cat", "[SEP]"]


def test_estimators_accept_the_name(stand_in):
    pytest.importorskip("sklearn", reason="pip install scikit-learn")
    from cloze.sklearn import Embedder

    vectors = Embedder("cloze-en").fit_transform(["the cat", "the cats"])
    assert np.array_equal(vectors, cloze.embed(cloze.load(stand_in), ["the cat", "the cats"]))


def test_an_existing_folder_takes_precedence(stand_in):
    tiny_model("sequence").save("cloze-en")
    assert cloze.load("cloze-en").task_heads == ("sequence",)
    assert cloze.load(stand_in).task_heads == ("mlm",)
    Path("cloze-en").rename("other")
    assert cloze.load("cloze-en").task_heads == ("mlm",)


def test_an_existing_tokenizer_file_takes_precedence(stand_in):
    tiny_model().tokenizer.save("cloze-en")
    (stand_in / "tokenizer.json").unlink()
    (stand_in / "vocab.txt").unlink()
    assert cloze.tokenize("cloze-en", "cat").tokens == ["[CLS]", "cat", "[SEP]"]


def test_the_error_for_an_unknown_name_lists_the_built_in_models(stand_in):
    tiny_model().save(stand_in.with_name("cloze-zh"))
    with raises(FolderError, "cloze-e", "built-in", fix=("cloze-en", "mean")):
        cloze.load("cloze-e")
    with raises(FolderError, "something", "built-in", fix="cloze-en, cloze-zh"):
        cloze.load("something")


def test_only_an_existing_folder_is_suggested_for_renaming(stand_in):
    with raises(FolderError, "runs/none") as raised:
        cloze.load("runs/none")
    assert "rename" not in raised.value.fix
    Path("runs").mkdir()
    with raises(FolderError, "runs/none", fix="rename the local folder runs"):
        cloze.load("runs/none")


def test_an_installation_without_models_is_reported(place):
    assert cloze.builtin() == {}
    with raises(FolderError, "built-in", fix=("cloze-en", "install")):
        cloze.load("cloze-en")


def test_a_folder_without_config_json_is_not_a_model(stand_in):
    (stand_in / "config.json").unlink()
    assert cloze.builtin() == {}


def test_a_name_cannot_leave_the_folder_of_built_in_models(stand_in):
    tiny_model().save(stand_in.parents[1] / "outside")
    with raises(FolderError, "../builtin/../nowhere"):
        cloze.load("../builtin/../nowhere")
    for name in ("../outside", "cloze-en/", "./cloze-en"):
        assert name not in cloze.builtin()


@pytest.mark.parametrize("name", sorted(cloze.builtin()))
def test_built_in_models_are_small_and_complete(name):
    folder = cloze.builtin()[name]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= ROOM
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("---\n")
    model = cloze.load(folder)
    assert not model.report
    if model.family.kind == "image_generator":
        assert model.draw("a red heart", steps=2).pixels.shape == (64, 64, 3)
    else:
        assert "mlm" in model.task_heads


def test_all_built_in_models_fit_into_a_wheel():
    files = (path for one in cloze.builtin().values() for path in one.rglob("*"))
    assert sum(path.stat().st_size for path in files if path.is_file()) <= ROOM_OF_ALL


def test_cloze_en_fills_masks_and_compares_texts():
    model = cloze.load("cloze-en")
    assert cloze.fill(model, "In winter the lake is covered with [MASK].").best.endswith("snow.")
    assert cloze.fill(model, "She is one [MASK] the best.").masks[0].predictions[0].word == "of"
    music, tune, shares = cloze.embed(
        model,
        ["A man plays a guitar.", "Someone is playing an instrument.", "Stocks fell on Friday."],
    )
    assert music @ music == pytest.approx(1.0, abs=1e-5)
    assert music @ tune > music @ shares + 0.3


def test_cloze_draw_draws_the_same_picture_with_the_same_seed():
    model = cloze.load("cloze-draw")
    pictures = [cloze.draw(model, "a red heart", steps=3, seed=seed).pixels for seed in (1, 1, 2)]
    assert {one.shape for one in pictures} == {(64, 64, 3)}
    assert np.array_equal(*pictures[:2])
    assert not np.array_equal(*pictures[1:])
