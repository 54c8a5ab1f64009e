"""The text column of tables: chosen once, by name or number."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloze.data.labelled.tables import read_text_examples
from cloze.data.readers import Row
from cloze.data.sources import read_rows
from cloze.errors import InputError
from helpers import Mentions, raises

MIXED = [{"text": "a", "text2": "b"}, {"other": "x"}, {"id": "7", "text": "c"}, "d"]


def sources(folder: Path) -> list[object]:
    path = folder / "mixed.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    return [path, [MIXED]]


@pytest.mark.parametrize("number", [0, 1], ids=["jsonl", "data set"])
def test_a_row_without_the_column_of_the_first_is_an_error(tmp_path: Path, number: int) -> None:
    source = sources(tmp_path)[number]
    with raises(InputError, ":2", "text", "other"):
        list(read_rows(source))
    errors: list[InputError] = []
    found = list(read_rows(source, on_error=errors.append))
    assert [(row.text, row.line) for row in found] == [("a", 1), ("c", 3), ("d", 4)]
    assert len(errors) == 1


def test_each_source_has_its_own_column(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"title": "one"}\n')
    (tmp_path / "b.jsonl").write_text('{"no": 1, "which": 2}\n{"no": 1, "body": "two"}\n')
    errors: list[InputError] = []
    found = list(read_rows([tmp_path, [{"content": "three"}]], on_error=errors.append))
    assert [row.text for row in found if isinstance(row, Row)] == ["one", "two", "three"]
    assert errors[0].problem == Mentions("b.jsonl:1: ", "column", "text")


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("0\ta film\n1\tanother\n", "2", ["a film", "another"]),
        ("2\ta film\n1\tanother\n", "2", ["a film", "another"]),  # a label is no name
        ("a film\t1\nanother\t0\n", "1", ["a film", "another"]),
        ("one\n\ntwo\n", "1", ["one", "", "two"]),
        ("id\tsentence\n7\ta film\n", "2", ["a film"]),
        ("ID\tSentence\n7\ta film\n", "sentence", ["a film"]),
        ("id\t2020\ttext\n7\tthen\tnow\n", "2020", ["then"]),  # no number of a column
    ],
)
def test_a_number_counts_columns_as_in_labelled_tables(
    tmp_path: Path, text: str, column: str, expected: list[str]
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(text)
    assert [row.text for row in read_rows(path, text_column=column)] == expected
    assert [
        one.text for one in read_text_examples(path, text_column=column, label_column=False)
    ] == expected


def test_a_number_selects_a_column_of_json_and_parquet(tmp_path: Path) -> None:
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["7"], "title": ["a"]}), parquet)
    assert [row.text for row in read_rows(parquet, text_column="2")] == ["a"]
    known: list[object] = [{"id": "7", "title": "a"}, {"title": "b", "id": "8"}]
    assert [row.text for row in read_rows([known], text_column="2")] == ["a", "b"]
    years: list[object] = [{"1": "a", "2": "b"}, {"1": "c", "x": "d"}, {"2": "e", "1": "f"}]
    errors: list[InputError] = []
    found = read_rows([years], text_column="2", on_error=errors.append)
    assert [row.text for row in found] == ["b", "e"]  # a name, and the second of no other row
    assert errors[0].problem == Mentions(":2: ", "column", "'2'")


@pytest.mark.parametrize("column", ["0", "3"])
@pytest.mark.parametrize("text", ["0\ta film\n", "label\ttext\n0\ta film\n"])
def test_columns_are_counted_from_one(tmp_path: Path, text: str, column: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(text)
    with raises(InputError, "1", column, "2") as wrong:
        list(read_rows(path, text_column=column))
    assert wrong.value.fix == Mentions("from 1")


def test_a_row_of_another_width_in_a_table_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("0\ta film\n1\n")
    with raises(InputError, ":2", "1", "2"):
        list(read_rows(path, text_column="2"))
