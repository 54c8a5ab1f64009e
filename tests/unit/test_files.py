"""Atomic writing, reading with limits, output paths."""

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import FolderError, InputError
from cloze.files import atomic_file, check_output_path, read_json, read_text, write_json, write_text
from helpers import raises


def failing(path):
    with atomic_file(path) as file:
        file.write(b"half")
        raise OSError(28, "No space left on device")


def test_a_failure_leaves_the_old_file(tmp_path):
    path = write_text(tmp_path / "folder" / "file", "old")
    with raises(OSError, "No space left"):
        failing(path)
    with raises(OSError, "No space left"):
        failing(tmp_path / "folder" / "other")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_leftovers_of_killed_processes_are_removed_and_files_in_use_are_not(tmp_path):
    write_text(tmp_path / ".file.0123abcd.new", "half")
    write_text(tmp_path / ".file.mine", "text")
    with atomic_file(tmp_path / "file") as living:
        write_text(tmp_path / "file", "first")
        living.write(b"second")
    assert (tmp_path / "file").read_text() == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.mine", "file"]


def test_a_failure_to_write_names_the_file(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # Python does not hear of SIGXFSZ
    try:
        with raises(OSError, "File too large") as raised:
            write_text(tmp_path / "file", "text" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_renamed_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with raises(OSError, "folder"):
        write_text(tmp_path / "folder", "text")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    done, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (done.append(Path(f"/proc/self/fd/{fd}").readlink()), fsync(fd))
    )
    monkeypatch.setattr(Path, "replace", lambda a, b: (done.append("name"), replace(a, b)))
    write_text(tmp_path / "file", "text")
    first, second, third = done
    assert first.name.startswith(".file.")
    assert (second, third) == ("name", tmp_path)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_permissions_of_a_file_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        path = write_text(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_links_and_devices_are_kept(tmp_path):
    (tmp_path / "link").symlink_to("real")
    assert write_text(tmp_path / "link", "text") == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.sampled_from([None, 1, 2]))
def test_json_round_trip(tmp_path_factory, value, indent):
    path = tmp_path_factory.getbasetemp() / "value.json"
    assert read_json(write_json(path, value, indent=indent)) == value


def test_a_lone_surrogate_is_escaped(tmp_path):
    assert read_json(write_json(tmp_path / "a", ["caf\udce9 é"])) == ["caf\udce9 é"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"1" * 5000, "JSON"),
        (b"\xff", ("UTF-8", "byte 0")),
        (b" " * 101, "101 bytes"),
    ],
)
def test_an_invalid_file_is_reported(tmp_path, content, message):
    (tmp_path / "a.json").write_bytes(content)
    with raises(FolderError, tmp_path / "a.json", message):
        read_json(tmp_path / "a.json", max_bytes=100 if len(content) == 101 else 1 << 20)


def test_a_missing_file_and_a_folder_are_reported(tmp_path):
    with raises(FolderError, "nowhere"):
        read_json(tmp_path / "nowhere")
    with raises(FolderError, "directory"):
        read_text(tmp_path, fix="mend it")


def test_a_byte_order_mark_is_removed(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf[1]\r\n")
    assert read_text(tmp_path / "a") == "[1]\n"
    assert read_json(tmp_path / "a") == [1]


# --- output paths


def write_file(path: Path, data: str) -> Path:
    path.write_text(data)
    return path


def test_an_existing_path_needs_force(tmp_path: Path) -> None:
    assert check_output_path(tmp_path / "new") == tmp_path / "new"
    (tmp_path / "empty").mkdir()
    assert check_output_path(tmp_path / "empty") == tmp_path / "empty"
    for taken, file in ((write_file(tmp_path / "file.npy", "x"), True), (tmp_path, False)):
        with raises(InputError, "exists", fix="--force"):
            check_output_path(taken, file=file)
        assert check_output_path(taken, force=True, file=file) == taken
        with raises(InputError, "file", "folder"):
            check_output_path(taken, force=True, file=not file)
    with raises(InputError, "empty", "folder", "file"):
        check_output_path(tmp_path / "empty", file=True)


@pytest.mark.parametrize("file", [True, False])
def test_a_path_that_cannot_be_written_is_reported_before_the_work(
    tmp_path: Path, file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = write_file(tmp_path / "a.txt", "x") / "b" / "c"
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


def test_devices_and_links_can_be_written(tmp_path: Path) -> None:
    assert check_output_path("/dev/null", force=True, file=True) == Path("/dev/null")
    link = tmp_path / "link"
    link.symlink_to(write_file(tmp_path / "there.txt", "x"))
    assert check_output_path(link, force=True, file=True) == link
