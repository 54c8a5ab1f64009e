"""Streams, which can be read once, as files that can be read again."""

import os
import threading
from pathlib import Path

from cloze.data.sources import read_rows, store_streams
from cloze.errors import InputError
from helpers import raises


def write(path: Path, data: str) -> Path:
    path.write_text(data)
    return path


def test_streams_become_files_that_read_the_same(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    told = "a cat.\nit sat.\n\na dog.\n"
    threading.Thread(target=pipe.write_text, args=(told,)).start()
    lasting = write(tmp_path / "a.txt", told)
    mixed = [{"words": "one", "n": 1}, "two", {"words": ["three", "four"], "n": 2}]
    with store_streams([pipe, lasting, iter(mixed)], tmp_path, column="words") as kept:
        assert kept[1] == lasting
        for _ in range(2):
            piped, plain, given = ([row[::3] for row in read_rows(one)] for one in kept)
            assert piped == plain == [row[::3] for row in read_rows(lasting)]
            assert given == [row[::3] for row in read_rows([mixed], column="words")]
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "a.txt"}


def test_broken_items_of_a_stream_are_raised_or_left_to_count(tmp_path: Path) -> None:
    with raises(InputError, "3"), store_streams([iter([3])], tmp_path):
        pass
    with store_streams([iter(["one", 3, "two"])], tmp_path, skip_broken=True) as kept:
        errors: list[InputError] = []
        assert [row.text for row in read_rows(kept, on_error=errors.append)] == ["one", "two"]
        assert len(errors) == 1
