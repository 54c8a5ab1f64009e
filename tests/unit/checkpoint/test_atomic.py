"""A folder takes its name whole, or what was there before stays."""

import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from cloze.checkpoint import atomic
from cloze.checkpoint.atomic import whole_folder
from cloze.errors import FolderError
from helpers import files_of
from languages import language_model


@pytest.fixture
def old(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").write_text("precious")
    return tmp_path / "m"


def overwrite(target, *, fail=False):
    with whole_folder(target, overwrite=True) as work:
        (work / "new").write_text("")
        if fail:
            raise OSError(28, "No space left on device")


def test_a_failure_while_saving_leaves_the_old_folder(old):
    with pytest.raises(OSError, match="No space left"):
        overwrite(old, fail=True)
    assert files_of(old.parent) == {"m/old"}


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), SafetensorError("I/O error: … (os error 28)")],
)
def test_a_full_disk_is_told_and_the_old_model_stays(old, error, monkeypatch):
    def full(*_args, **_kwargs):
        raise error

    model = language_model("lstm")
    monkeypatch.setattr("cloze.checkpoint.own.save_file", full)
    for write in (lambda: model.save(old, overwrite=True), lambda: model.save_into(old)):
        with pytest.raises(
            FolderError, match="the disk is full: the model was not written.*\n.*--resume"
        ):
            write()
        assert files_of(old.parent) == {"m/old"}
        assert list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize("swaps", [True, False])
def test_the_old_folder_gives_way(old, swaps, monkeypatch):
    if not swaps:  # as on a system that cannot swap two names at once
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    overwrite(old)
    assert files_of(old.parent) == {"m/new"}
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize("fails", [1, 2])
def test_a_name_that_cannot_change_hands_leaves_the_old_folder(old, fails, monkeypatch):
    rename, calls = Path.rename, []

    def failing(path, to):
        calls.append(path)
        if len(calls) == fails:
            raise OSError(5, "Input/output error")
        return rename(path, to)

    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="Input/output error"):
        overwrite(old)
    assert files_of(old.parent) == {"m/old"}
    assert list(old.parent.iterdir()) == [old]


def test_a_link_stays_one_and_a_file_gives_way(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    overwrite(tmp_path / "link")
    overwrite(tmp_path / "file")
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "real"]
    assert files_of(tmp_path) >= {"real/new", "file/new"}


def test_a_folder_is_for_whoever_the_umask_lets_in(tmp_path):
    before = os.umask(0o027)
    try:
        overwrite(tmp_path / "m")
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o750
