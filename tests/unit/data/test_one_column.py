"""The text of rows is in one column, chosen once: nothing else is taken for it."""

import json
from pathlib import Path

import pytest

from cloze.data.readers import Row
from cloze.data.streams import rows
from cloze.errors import InputError

MIXED = [{"text": "a", "text2": "b"}, {"other": "x"}, {"id": "7", "text": "c"}, "d"]


def sources(folder: Path) -> list[object]:
    path = folder / "mixed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    return [path, [MIXED]]


@pytest.mark.parametrize("number", [0, 1], ids=["jsonl", "data set"])
def test_a_row_without_the_column_of_the_first_is_an_error(tmp_path: Path, number: int) -> None:
    source = sources(tmp_path)[number]
    with pytest.raises(InputError, match=r":2: no column is called 'text', there are 'other'"):
        list(rows(source))
    errors: list[InputError] = []
    found = list(rows(source, on_error=errors.append))
    assert [(row.text, row.line) for row in found] == [("a", 1), ("c", 3), ("d", 4)]
    assert len(errors) == 1


def test_each_source_chooses_for_itself(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"title": "one"}\n')
    (tmp_path / "b.jsonl").write_text('{"no": 1, "which": 2}\n{"no": 1, "body": "two"}\n')
    errors: list[InputError] = []
    found = list(rows([tmp_path, [{"content": "three"}]], on_error=errors.append))
    assert [row.text for row in found if isinstance(row, Row)] == ["one", "two", "three"]
    assert "which column holds the text?" in errors[0].problem
