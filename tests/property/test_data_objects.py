"""The same rows in any object or file give the same examples."""

import csv
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from cloze.data.delimiters import detect_dialect
from cloze.data.labelled.examples import UNKNOWN_ORIGIN
from cloze.data.labelled.tables import read_text_examples
from generated_examples import examples

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
datasets = pytest.importorskip("datasets")

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff\r\n\t"), max_size=20)
WORD = st.text(st.sampled_from("ab c'.-é中"), min_size=1, max_size=8).filter(str.strip)
LABEL = st.sampled_from(["good", "bad", "so so"])
ROWS = st.lists(st.tuples(TEXT, LABEL), min_size=1, max_size=8)


def read(source, **options):
    """The examples, without their origins."""
    found = read_text_examples(source, **options)
    return [replace(one, origin=UNKNOWN_ORIGIN) for one in found]


def write_table(rows, delimiter, quoting=csv.QUOTE_MINIMAL):
    table = io.StringIO(newline="")
    csv.writer(table, delimiter=delimiter, quoting=quoting).writerows(rows)
    return table.getvalue()


def write_all(folder, rows):
    """The rows as files of every format."""
    names = ["text", "label"]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    files = {
        "comma.csv": write_table([names, *rows], ","),
        "semicolon.csv": write_table([names, *rows], ";", csv.QUOTE_ALL),
        "comma.txt": write_table([names, *rows], ","),
        "plain.tsv": "\n".join("\t".join(row) for row in [names, *rows]),
        "quoted.tsv": write_table([names, *rows], "\t", csv.QUOTE_ALL),
        "rows.jsonl": "\n".join(map(json.dumps, records)),
        "rows.json": json.dumps(records),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8", newline="")
    polars.DataFrame(records).write_parquet(folder / "rows.parquet")
    return [folder / name for name in (*files, "rows.parquet")]


@examples(25)
@given(ROWS)
@example([('"', "good"), ("", "bad")])
def test_objects_and_files_with_the_same_rows_give_the_same_examples(rows):
    texts, labels = (list(column) for column in zip(*rows, strict=True))
    assume(all('""' not in text for text in texts))  # in a .tsv it may also be quoting
    frame = pandas.DataFrame({"text": texts, "label": labels})
    records = [{"text": text, "label": label} for text, label in rows]
    want = read(records)
    assert [(one.text, one.label) for one in want] == rows
    sources = [
        frame,
        frame.set_index(frame.index + 7),
        frame.assign(label=frame.label.astype("category")),
        polars.DataFrame(records),
        pyarrow.table({"text": texts, "label": labels}),
        datasets.Dataset.from_list(records),
        iter(records),
        (record for record in records),
        {"text": texts, "label": labels},
        (texts, labels),
        (frame["text"], frame["label"]),
        (np.array(texts, dtype=str), np.array(labels)),
        (polars.Series(texts), labels),
    ]
    for source in sources:
        if isinstance(source, tuple) and isinstance(source[0], np.ndarray):
            assume(not any(text.endswith("\0") for text in texts))
        assert read(source) == want, type(source)
    with tempfile.TemporaryDirectory() as folder:
        for path in write_all(Path(folder), rows):
            assert read(path) == want, path.name


@examples(50)
@given(
    st.lists(st.lists(WORD, min_size=3, max_size=3), min_size=2, max_size=9),
    st.sampled_from(",;|\t"),
    st.sampled_from(["csv", "tsv"]),
)
def test_the_delimiter_is_the_one_that_gives_equal_column_counts(rows, delimiter, format_):
    lines = write_table([["text", "pair", "label"], *rows], delimiter).splitlines(keepends=True)
    found = detect_dialect(lines, format_)
    assert found.delimiter == delimiter
    assert list(found.split(iter(lines)))[1:] == rows


@examples(50)
@given(st.lists(st.tuples(TEXT, LABEL), min_size=1, max_size=9), st.booleans())
def test_quotes_in_a_tsv_are_a_part_of_the_text(rows, complete):
    assume(all('""' not in text for text, _ in rows))
    lines = [f"{text}\t{label}\n" for text, label in [("sentence", "label"), *rows]]
    dialect = detect_dialect(lines, "tsv", complete=complete)
    assert [tuple(row) for row in dialect.split(iter(lines))][1:] == rows


@examples(50)
@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff\r"), max_size=20),
        min_size=1,
        max_size=9,
    )
)
def test_tabs_and_line_breaks_in_quoted_fields_of_a_tsv(texts):
    rows = [[text, "x"] for text in texts]
    lines = write_table([["text", "label"], *rows], "\t", csv.QUOTE_ALL)
    found = detect_dialect(lines.splitlines(keepends=True), "tsv")
    assert found.quoted
    assert list(found.split(iter(lines.splitlines(keepends=True))))[1:] == rows


@pytest.mark.parametrize(
    "lines",
    [
        ["Well, it was fine.\n", "No, it was not.\n"],
        ["One.\n", "Two; three.\n"],
        ["text\n", "a, b\n"],
    ],
)
@pytest.mark.parametrize("format_", ["csv", "tsv"])
def test_texts_without_a_delimiter_are_one_column(lines, format_):
    expected = "," if format_ == "csv" else "\t"
    assert detect_dialect(lines, format_).delimiter == expected
