"""Small copies of images in the folder of an index, whose files are not trusted."""

import pytest

from cloze.retrieval.thumbnails import (
    FOLDER,
    read_thumbnail,
    remove_thumbnails,
    write_thumbnail,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_written_read_and_removed(tmp_path):
    for digest in ("ab" * 16, "cd" * 16):
        write_thumbnail(tmp_path, digest, PNG)
    assert read_thumbnail(tmp_path, "ab" * 16) == PNG
    remove_thumbnails(tmp_path, {"cd" * 16})
    assert read_thumbnail(tmp_path, "ab" * 16) is None
    assert read_thumbnail(tmp_path, "cd" * 16) == PNG


@pytest.mark.parametrize("digest", ["", "../../secret", "ab/../cd", "AB" * 16, "a" * 100])
def test_a_digest_is_no_path(tmp_path, digest):
    (tmp_path / "secret.png").write_bytes(PNG)
    write_thumbnail(tmp_path / "index", digest, PNG)
    assert read_thumbnail(tmp_path / "index", digest) is None
    assert not (tmp_path / "index").exists()


def test_other_files_and_large_ones_are_ignored(tmp_path):
    path = tmp_path / FOLDER / "ab" / f"{'ab' * 16}.png"
    path.parent.mkdir(parents=True)
    for content in (b"", b"<svg/>", PNG + bytes(1 << 18)):
        path.write_bytes(content)
        assert read_thumbnail(tmp_path, "ab" * 16) is None
