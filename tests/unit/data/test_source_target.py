"""Pairs of a source and a target from tables, aligned lines and running text."""

import json

import pandas as pd
import pytest

from cloze.data.source_target import load_pairs, read_lead_pairs
from cloze.errors import InputError
from helpers import raises

PAIRS = [("One. Two.", "Sum, one."), ("Three.", "Sum\ttwo")]


def write(path, names):
    rows = [dict(zip(names, pair, strict=True)) for pair in PAIRS]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize(
    "names", [("text", "summary"), ("article", "highlights"), ("BODY", "Target")]
)
def test_columns_are_found_by_their_names(ending, names, tmp_path):
    found = load_pairs(write(tmp_path / f"a{ending}", names), "summarize")
    assert list(zip(found.source, found.target, strict=True)) == PAIRS


def test_objects_and_lists_are_the_same(tmp_path):
    rows = [{"id": n, "doc": a, "sum": b} for n, (a, b) in enumerate(PAIRS)]
    expected = load_pairs([[a for a, _ in PAIRS], [b for _, b in PAIRS]], "summarize")
    for source in (rows, pd.DataFrame(rows), iter(rows), pd.DataFrame(rows).to_dict("list")):
        found = load_pairs(source, "summarize", text_column="doc", target_column=3)
        assert found == expected
    aligned = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, side in zip(aligned, zip(*PAIRS, strict=True), strict=True):
        path.write_text("\n".join(side) + "\n", encoding="utf-8")
    assert load_pairs(aligned, "translate") == expected


def test_paragraphs_are_joined_and_blank_targets_left_out():
    rows = [{"paragraphs": ["a", "b"], "summary": "c"}, {"paragraphs": ["a"], "summary": None}]
    found = load_pairs(rows, "summarize")
    assert (found.source, found.target, found.num_blank) == (["a\nb"], ["c"], 1)


def test_a_table_without_a_header(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a dog\tein Hund\ta cat\n", encoding="utf-8")
    found = load_pairs(path, text_column=3, target_column=2)
    assert (found.source, found.target) == (["a cat"], ["ein Hund"])


def test_what_is_wrong_is_named(tmp_path):
    bad = write(tmp_path / "a.jsonl", ("title", "summary"))
    with raises(InputError, "a.jsonl", "source", "title", fix="--text-column"):
        load_pairs(bad, "summarize")
    with raises(InputError, "nothing", "title", fix="title"):
        load_pairs(bad, "summarize", text_column="nothing")
    with raises(InputError, "target", fix="--target-column"):
        load_pairs([{"text": "a", "label": 1}], "summarize")
    with raises(InputError, "summary", "int"):
        load_pairs([{"text": "a", "summary": 1}], "summarize")
    with raises(InputError, "column", fix="table"):
        load_pairs([["a"], ["b"]], text_column="x")
    with raises(InputError, "1 file", "summarize", fix="summary"):
        load_pairs(tmp_path / "a.txt", "summarize")
    with raises(InputError, "pairs"):
        load_pairs([{"text": " ", "summary": "a"}], "summarize")


def test_the_lead_of_a_document_is_its_summary(tmp_path):
    path = tmp_path / "wiki.txt"
    lead = "A dog is an animal that lives with people everywhere."
    path.write_text(
        f"Dog\n{lead}\nIt barks.\nIt runs.\n\nShort\nToo short.\nBody.\n\nEmpty\n{lead}\n",
        encoding="utf-8",
    )
    assert list(read_lead_pairs(path)) == [
        {"title": "Dog", "text": "It barks.\nIt runs.", "summary": lead}
    ]
    found = load_pairs([path], "summarize", lead_as_summary=True)
    assert (found.source, found.target) == (["It barks.\nIt runs."], [lead])
