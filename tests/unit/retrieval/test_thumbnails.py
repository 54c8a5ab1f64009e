"""Small copies of images in the folder of an index, whose files are not trusted."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.retrieval import thumbnails
from cloze.retrieval.thumbnails import FOLDER, Thumbnails

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
FIRST, SECOND = "ab" * 16, "cd" * 16


@pytest.fixture
def always_copied(monkeypatch):
    monkeypatch.setattr(thumbnails, "_MAX_UNUSED", 0)


def list_files(folder):
    return sorted(path.name for path in (folder / FOLDER).iterdir())


def test_written_read_and_removed(tmp_path, always_copied):
    writer, reader = Thumbnails(tmp_path), Thumbnails(tmp_path)
    assert reader.read(FIRST) is None
    writer.write(FIRST, PNG + b"1" * 99)
    writer.write(SECOND, PNG)
    writer.write(SECOND, PNG + b"2")  # the last one counts
    assert list_files(tmp_path) == ["0.bin", "0.idx"]
    for one in (writer, reader, Thumbnails(tmp_path)):
        assert one.read(FIRST) == PNG + b"1" * 99
        assert one.read(SECOND) == PNG + b"2"
    writer.remove_unused({FIRST, SECOND})  # less than half is unused
    assert list_files(tmp_path) == ["0.bin", "0.idx"]
    writer.remove_unused({SECOND})
    assert list_files(tmp_path) == ["1.bin", "1.idx"]
    writer.write(FIRST, PNG)
    for one in (writer, reader, Thumbnails(tmp_path)):
        assert one.read(SECOND) == PNG + b"2"
        assert one.read(FIRST) == PNG
    writer.remove_unused(())
    assert [one.read(FIRST) for one in (writer, reader)] == [None, None]


def test_little_that_is_unused_is_kept(tmp_path):
    writer = Thumbnails(tmp_path)
    writer.remove_unused(())
    writer.write(FIRST, PNG)
    writer.remove_unused(())
    assert writer.read(FIRST) == PNG


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 300), st.integers(0, 200))
def test_what_a_killed_process_has_left_is_ignored(tmp_path_factory, images, records):
    """A kill may cut both files anywhere after what was complete before."""
    folder = tmp_path_factory.mktemp("killed")
    Thumbnails(folder).write(FIRST, PNG)
    sizes = {path: path.stat().st_size for path in (folder / FOLDER).iterdir()}
    Thumbnails(folder).write(SECOND, PNG + b"2")
    for (path, size), more in zip(sorted(sizes.items()), (images, records), strict=True):
        os.truncate(path, min(path.stat().st_size, size + more))
    assert Thumbnails(folder).read(FIRST) == PNG
    assert Thumbnails(folder).read(SECOND) in (None, PNG + b"2")
    third = "ef" * 16
    Thumbnails(folder).write(third, PNG + b"3")
    assert Thumbnails(folder).read(third) == PNG + b"3"
    assert Thumbnails(folder).read(FIRST) == PNG


def test_a_copy_that_was_killed_changes_nothing(tmp_path, monkeypatch, always_copied):
    writer = Thumbnails(tmp_path)
    for digest in (FIRST, SECOND):
        writer.write(digest, PNG + digest.encode())
    calls = []

    def fail_second(path):
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return open_file(path)

    open_file = thumbnails.atomic_file
    monkeypatch.setattr(thumbnails, "atomic_file", fail_second)
    with pytest.raises(KeyboardInterrupt):
        writer.remove_unused(())
    assert list_files(tmp_path) == ["0.bin", "0.idx", "1.bin"]
    assert Thumbnails(tmp_path).read(FIRST) == PNG + FIRST.encode()
    monkeypatch.undo()
    monkeypatch.setattr(thumbnails, "_MAX_UNUSED", 0)
    Thumbnails(tmp_path).remove_unused(())
    assert list_files(tmp_path) == ["1.bin", "1.idx"]


@pytest.mark.parametrize("digest", ["", "../../secret", "ab/../cd", "AB" * 16, "a" * 100])
def test_a_digest_is_no_path(tmp_path, digest):
    found = Thumbnails(tmp_path / "index")
    found.write(digest, PNG)
    assert found.read(digest) is None
    assert not (tmp_path / "index").exists()


def test_other_contents_and_large_ones_are_ignored(tmp_path):
    found = Thumbnails(tmp_path)
    for content in (b"", b"<svg/>", PNG + bytes(1 << 18)):
        found.write(FIRST, content)
        assert found.read(FIRST) is None
    records = tmp_path / FOLDER / "0.idx"
    for start, length in ((2**64 - 1, 9), (0, 2**32 - 1), (2**40, 30), (1, 28)):
        records.write_bytes(np.array((FIRST, start, length), thumbnails._RECORD).tobytes())
        assert Thumbnails(tmp_path).read(FIRST) is None
    for name in ("x.idx", "99999999999.idx", "7.idx"):
        (tmp_path / FOLDER / name).mkdir()
    assert Thumbnails(tmp_path).read(FIRST) is None
