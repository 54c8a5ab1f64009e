"""Minimal pairs from files."""

import pytest

from cloze.data.labelled.minimal_pairs import read_minimal_pairs
from cloze.errors import InputError
from helpers import raises

FILES = {
    "names.tsv": "id\tsentence_bad\tsentence_good\n1\tb\ta\n2\td\tc\n",
    "short.csv": "Good,Bad\na,b\nc,d\n",
    "plain.tsv": "a\tb\nc\td\textra\n",
    "plain.txt": "a\tb\nc\td\n",
    "lines.jsonl": '{"sentence_bad": "b", "sentence_good": "a"}\n{"good": "c", "bad": "d"}\n',
    "first.jsonl": '{"one": "a", "two": "b"}\n{"one": "c", "two": "d", "three": 3}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_columns(name, tmp_path):
    (tmp_path / name).write_text(FILES[name])
    found = list(read_minimal_pairs(tmp_path / name))
    assert [(one.good, one.bad) for one in found] == [("a", "b"), ("c", "d")]
    assert found[1].origin.file == str(tmp_path / name)


def test_a_row_of_one_text(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("a\tb\nalone\nc\td\n")
    with raises(InputError, "pairs.tsv:2", fix="sentence_good"):
        list(read_minimal_pairs(file))
    errors = []
    found = list(read_minimal_pairs(file, on_error=errors.append))
    assert [one.good for one in found] == ["a", "c"]
    assert len(errors) == 1
    (tmp_path / "bad.jsonl").write_text('["a", "b"]\n{"a": 1, "b": 2}\n')
    assert list(read_minimal_pairs(tmp_path / "bad.jsonl", on_error=errors.append)) == []
    assert len(errors) == 3
