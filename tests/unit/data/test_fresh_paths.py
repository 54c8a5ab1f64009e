"""Where something is to be written: what stands in the way is told before the work."""

from pathlib import Path

import pytest

from cloze.errors import InputError
from cloze.files import check_output_path
from helpers import raises


def write(path: Path, data: str) -> Path:
    path.write_text(data)
    return path


def test_a_fresh_path_overwrites_nothing_unasked(tmp_path: Path) -> None:
    assert check_output_path(tmp_path / "new") == tmp_path / "new"
    (tmp_path / "empty").mkdir()
    assert check_output_path(tmp_path / "empty") == tmp_path / "empty"
    for taken, file in ((write(tmp_path / "file.npy", "x"), True), (tmp_path, False)):
        with raises(InputError, "exists", fix="--force"):
            check_output_path(taken, file=file)
        assert check_output_path(taken, force=True, file=file) == taken
        with raises(InputError, "file", "folder"):
            check_output_path(taken, force=True, file=not file)
    with raises(InputError, "empty", "folder", "file"):
        check_output_path(tmp_path / "empty", file=True)


@pytest.mark.parametrize("file", [True, False])
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = write(tmp_path / "a.txt", "x") / "b" / "c"
    with raises(InputError, "a.txt", "file", fix="folder"):
        check_output_path(inside, file=file)
    with raises(InputError, "too long"):
        check_output_path(tmp_path / ("x" * 300), file=file)
    if Path("/proc").is_dir():
        with raises(InputError, "/proc/x/y"):
            check_output_path("/proc/x/y", file=file)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert check_output_path("deep/down", file=file) == Path("deep/down")
    assert sorted(tmp_path.iterdir()) == before, "nothing is left of the trial"


def test_what_is_no_file_can_be_written_to(tmp_path: Path) -> None:
    assert check_output_path("/dev/null", force=True, file=True) == Path("/dev/null")
    link = tmp_path / "link"
    link.symlink_to(write(tmp_path / "there.txt", "x"))
    assert check_output_path(link, force=True, file=True) == link
