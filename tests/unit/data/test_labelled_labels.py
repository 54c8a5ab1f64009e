"""Several labels per text: lists, strings with a delimiter, columns of 0 and 1."""

from pathlib import Path

import pytest

from cloze.data.labelled.labels import detect_delimiter
from cloze.data.labelled.tables import read_text_examples
from cloze.errors import InputError
from helpers import raises

WANT = [("a", "b"), ("b",), (), ("a",)]


def labels(source, **options):
    return [one.label for one in read_text_examples(source, **options)]


def test_lists_strings_and_columns_give_the_same_labels(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    texts = ["one", "two", "three", "four"]
    frame = pandas.DataFrame({"text": texts, "labels": [list(row) for row in WANT]})
    assert labels(frame) == WANT
    for name in ("rows.jsonl", "rows.parquet", "lists.csv"):
        path = tmp_path / name
        if name.endswith("csv"):
            frame.to_csv(path, index=False)  # "['a', 'b']"
        elif name.endswith("parquet"):
            frame.to_parquet(path)
        else:
            frame.to_json(path, orient="records", lines=True)
        assert labels(path) == WANT, name
    assert labels((texts, [list(row) for row in WANT])) == WANT
    for delimiter in "|;,":
        joined = frame.assign(labels=[delimiter.join(row) for row in WANT])
        assert labels(joined) == WANT
        assert labels(joined, label_delimiter=delimiter) == WANT
        joined.to_csv(tmp_path / "joined.tsv", sep="\t", index=False)
        assert labels(tmp_path / "joined.tsv") == WANT
    columns = frame.assign(a=[1, 0, 0, 1], b=[True, True, False, False])[["text", "a", "b"]]
    assert labels(columns, label_column=["a", "b"]) == WANT
    columns.to_csv(tmp_path / "columns.csv", index=False)
    assert labels(tmp_path / "columns.csv", label_column=["a", "b"]) == WANT
    assert labels(tmp_path / "columns.csv", label_column=[2, 3]) == WANT


def test_numbers_of_classes_get_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    feature = datasets.Sequence(datasets.ClassLabel(names=["anger", "joy"]))
    features = datasets.Features({"text": datasets.Value("string"), "labels": feature})
    rows = {"text": ["x", "y", "z"], "labels": [[0, 1], [], [1]]}
    assert labels(datasets.Dataset.from_dict(rows, features)) == [("anger", "joy"), (), ("joy",)]


@pytest.mark.parametrize(
    ("values", "delimiter"),
    [
        (["a|b", "a", "b"], "|"),
        (["a, b", "a", "b", "b, a, c", "c"], ","),
        (["sport|golf", "sport|tennis", "arts|golf", "arts|tennis", "x|golf"], None),  # paths
        (["Arts, music", "Business", "Sport"], None),  # one name with a comma
        (["1,5", "2,5", "1", "2", "5"], None),  # decimal commas
        (["good", "bad"], None),
        (["a||b", "a", "b"], None),
    ],
)
def test_a_delimiter_separates_labels_that_are_combined(values, delimiter) -> None:
    assert detect_delimiter(values) == delimiter


def test_the_labels_of_a_model_decide_how_strings_are_split() -> None:
    rows = [{"text": "a", "label": "x;y"}, {"text": "b", "label": "z"}]
    assert labels(rows) == ["x;y", "z"]
    assert labels(rows, is_multi_label=True, labels=("x", "y", "z")) == [("x", "y"), ("z",)]
    assert labels(rows, is_multi_label=True, labels=("x;y", "z")) == [("x;y",), ("z",)]
    assert labels(rows, is_multi_label=False) == ["x;y", "z"]


def test_invalid_labels_name_their_row_and_column() -> None:
    table = {"text": ["x", "y"], "a": [1, 2], "b": [0, 1]}
    with raises(InputError, "<dict>:2", "'a'", "2", fix="1"):
        labels(table, label_column=["a", "b"])
    with raises(InputError, "<dict>:1", "c", fix="a"):
        labels(table, label_column=["a", "c"])
    with raises(InputError, "<list>:2", "label", "missing"):
        labels([{"text": "x", "label": ["a"]}, {"text": "y", "label": None}])
    with raises(InputError, "<list>:1", "label", "empty"):
        labels([{"text": "x", "label": ["a", " "]}])
