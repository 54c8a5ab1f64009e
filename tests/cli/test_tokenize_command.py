import json
from pathlib import Path

import pytest

from cloze.tasks.tokenize import tokenize


def test_json_has_everything_and_equals_python(run, tokenizer_folder: Path) -> None:
    done = run("tokenize", tokenizer_folder, "The cat sat.", "--pair", "北京 dog", "--json")
    want = tokenize(tokenizer_folder, "The cat sat.", "北京 dog")
    assert json.loads(done.stdout) == {
        "text": "The cat sat.",
        "pair": "北京 dog",
        "ids": want.ids,
        "tokens": want.tokens,
        "offsets": [list(span) for span in want.offsets],
        "words": want.words,
        "type_ids": want.type_ids,
    }
    assert "北" in done.stdout  # as it is, not as an escape


@pytest.mark.parametrize("file", ["", "tokenizer.json", "vocab.txt"])
def test_a_table_of_pieces(run, tokenizer_folder: Path, file: str) -> None:
    done = run("tokenize", tokenizer_folder / file, "The cat")
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert header == ["token", "id", "characters", "word", "type"]
    assert [[piece, *rest] for piece, _, *rest in rows] == [
        ["[CLS]", "", "", "0"],
        ["the", "0–3", "0", "0"],
        ["cat", "4–7", "1", "0"],
        ["[SEP]", "", "", "0"],
    ]
    assert all(number.isdecimal() for _, number, *_ in rows)


def test_several_texts_are_one_table(run, tokenizer_folder: Path) -> None:
    done = run("tokenize", tokenizer_folder, "-", stdin="the cat\n\nthe\n")
    header, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert header == ["text", "token", "id", "characters", "word", "type"]
    assert [row[:2] for row in rows if row[1][0] != "["] == [
        ["1", "the"],
        ["1", "cat"],
        ["3", "the"],
    ]
    assert {len(row) for row in rows} == {len(header)}
