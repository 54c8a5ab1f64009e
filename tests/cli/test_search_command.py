"""`cloze index` and `cloze search`."""

import json

import pytest

from helpers import tiny_model

ROWS = [
    {"id": "a", "title": "One", "text": "The cat sat. The dog ran.", "year": 1},
    {"id": "b\u202e", "text": "The dog sat.", "year": 2},
]


@pytest.fixture
def place(tmp_path):
    tiny_model("mlm").save(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    return tmp_path


def test_index_and_search(run, place):
    build = ["index", place / "rows.jsonl", "--out", place / "i", "--model", place / "model"]
    made = run(*build, "--store", "exact")
    assert made.returncode == 0, made.stderr
    assert "2 documents in 2 chunks (2 added)" in made.stderr
    found = run("search", place / "i", "dog", "--mode", "bm25", "--filter", "year>=1")
    lines = [line.split("\t") for line in found.stdout.splitlines()]
    assert lines[0] == ["rank", "score", "id", "title", "snippet"]
    assert [line[2] for line in lines[1:]] == ["b\\u202e", "a"]
    both = run("search", place / "i", "dog", "cat", "--k", "1", "--json").stdout.splitlines()
    assert [json.loads(line)["query"] for line in both] == ["dog", "cat"]
    again = run(*build, "--update", "--json")
    assert json.loads(again.stdout)["unchanged"] == 2
    gone = run("index", "--out", place / "i", "--delete", "a")
    assert "1 deleted" in gone.stderr


def test_mistakes(run, place):
    for arguments, code in (
        (["index", "--out", place / "i"], 2),
        (["index", place / "none.txt", "--out", place / "i", "--model", place / "model"], 1),
        (["index", "--out", place / "i", "--delete", "a"], 1),
        (["search", place, "x"], 1),
        (["search", place / "i", "x", "--mode", "sql"], 2),
    ):
        done = run(*arguments)
        assert done.returncode == code, (arguments, done.stderr)
    docs = place / "docs"
    docs.mkdir()
    (docs / "bad.jsonl").write_text('{"id": "x", "text": 5}\n{"id": "y", "text": "a cat"}\n')
    (docs / "other.docx").write_text("a dog")
    build = ["index", docs, "--out", place / "i", "--model", place / "model"]
    done = run(*build)
    assert done.returncode == 1
    assert "--skip-bad" in done.stderr
    assert not (place / "i").exists()
    done = run(*build, "--skip-bad", "--store", "exact")
    assert done.returncode == 0
    assert "1 inputs could not be read and were skipped" in done.stderr
    assert "1 files of other types were left out: .docx 1" in done.stderr
