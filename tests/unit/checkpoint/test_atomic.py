"""Atomic writing: a folder is replaced completely, or the old one stays."""

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from cloze.checkpoint import atomic
from cloze.checkpoint.atomic import atomic_folder
from cloze.checkpoint.state import save_state
from cloze.errors import FolderError
from cloze.make.float8 import save_float8
from helpers import files_of, raises, tiny_model, word_model
from languages import neural_model
from saving_jobs import die_while_saving_into, mark_of, marked, numbered
from training import in_one_process


@pytest.fixture
def old(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").write_text("precious")
    return tmp_path / "m"


def overwrite(target, *, fail=False):
    with atomic_folder(target, force=True) as work:
        (work / "new").write_text("")
        if fail:
            raise OSError(28, "No space left on device")


def test_a_failure_while_saving_leaves_the_old_folder(old):
    with raises(OSError, "No space left"):
        overwrite(old, fail=True)
    assert files_of(old.parent) == {"m/old"}


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), SafetensorError("I/O error: … (os error 28)")],
)
def test_a_full_disk_is_reported_and_the_old_model_stays(old, error, monkeypatch):
    def full(*_args, **_kwargs):
        raise error

    model = neural_model("lstm")
    monkeypatch.setattr("cloze.checkpoint.modules.save_file", full)
    for write in (lambda: model.save(old, force=True), lambda: model.save_into(old)):
        with raises(FolderError, "disk", fix="--resume"):
            write()
        assert files_of(old.parent) == {"m/old"}
        assert list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize("swaps", [True, False])
def test_an_old_folder_is_replaced(old, swaps, monkeypatch):
    if not swaps:  # as on a system that cannot swap two names at once
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    overwrite(old)
    assert files_of(old.parent) == {"m/new"}
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize("fails", [1, 2])
def test_a_failed_rename_leaves_the_old_folder(old, fails, monkeypatch):
    rename, calls = Path.rename, []

    def failing(path, to):
        calls.append(path)
        if len(calls) == fails:
            raise OSError(5, "Input/output error")
        return rename(path, to)

    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", failing)
    with raises(OSError, "Input/output"):
        overwrite(old)
    assert files_of(old.parent) == {"m/old"}
    assert list(old.parent.iterdir()) == [old]


def test_a_symbolic_link_is_kept_and_a_file_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    overwrite(tmp_path / "link")
    overwrite(tmp_path / "file")
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "real"]
    assert files_of(tmp_path) >= {"real/new", "file/new"}


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_models_and_states_have_the_permissions_of_the_umask(tmp_path, mask):
    words = word_model(words=("a",), vectors=np.ones((1, 2), np.float32))
    before = os.umask(mask)
    try:
        tiny_model("mlm").save(tmp_path / "model")
        tiny_model("mlm").save_into(tmp_path / "run")
        save_float8(tiny_model("mlm"), tmp_path / "small")
        words.save(tmp_path / "words")
        save_state(tmp_path / "state", numbered(1))
    finally:
        os.umask(before)
    written = list(tmp_path.rglob("*"))
    assert sum(path.name == "model.safetensors" for path in written) == 5
    for path in written:
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_a_crash_at_any_operation_leaves_the_old_model_or_the_new_one(tmp_path):
    in_one_process(die_while_saving_into, tmp_path / "run")


def test_without_hard_links_files_are_copied(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", none)
    marked(1).save_into(tmp_path / "run")
    marked(2).save_into(tmp_path / "run")
    assert mark_of(tmp_path / "run") == 2
    assert not (tmp_path / "run" / "cloze.json").exists()


def test_leftovers_of_a_killed_process_are_removed(old):
    left = old.with_name(".m.0123abcd.new")
    left.mkdir()
    (left / "half").write_text("")
    others = {".m.0123abcd.new.old", ".m.cafe", ".n.0123abcd.new", ".m.notahexa.new"}
    for name in others:
        old.with_name(name).mkdir()
    with atomic_folder(old.with_name("m"), force=True) as living:
        overwrite(old)
        assert living.exists()
    assert {path.name for path in old.parent.iterdir()} == {"m", *others}


def test_an_error_names_the_folder_and_not_the_temporary_one(old):
    def fails(error):
        with atomic_folder(old, force=True) as work:
            raise error(work)

    for error in (
        lambda _: OSError(28, "No space left on device"),
        lambda work: OSError(28, "No space left on device", str(work / "x")),
    ):
        with raises(OSError, "No space left") as raised:
            fails(error)
        assert raised.value.filename == str(old)
    with raises(OSError, "No such file") as raised:
        fails(lambda _: FileNotFoundError(2, "No such file or directory", "/elsewhere"))
    assert raised.value.filename == "/elsewhere"
