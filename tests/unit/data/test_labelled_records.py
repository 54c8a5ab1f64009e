"""Labelled data from standard input and named pipes is read like files."""

import io
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloze.data.labelled.choices import read_choice_examples
from cloze.data.labelled.examples import UNKNOWN_ORIGIN
from cloze.data.labelled.questions import read_question_examples
from cloze.data.labelled.tables import read_text_examples
from cloze.data.labelled.tags import read_tagged_examples
from cloze.errors import InputError
from helpers import raises

ROW = {"text": "a, b", "label": "yes"}
QUESTION = {
    "id": "1",
    "question": "which?",
    "context": "a b",
    "answers": [{"text": "b", "answer_start": 2}],
}
SQUAD = {"data": [{"paragraphs": [{"context": "a b", "qas": [QUESTION]}]}]}
CHOICE = {"text": "a", "options": ["b", "c"], "label": 1}
DREAM = [[["M: a"], [{"question": "q", "choice": ["b", "c"], "answer": "c"}], "1-2"]]
WORDS = {"tokens": ["Ann", "ran"], "tags": ["B-PER", "O"]}

Read = Callable[..., Any]
# how it is read, the ending that says what it is, and what is in it
KINDS: list[tuple[Read, str, str]] = [
    (read_text_examples, "tsv", "text\tlabel\na, b\tyes\n\nc\tno\n"),
    (read_text_examples, "tsv", "[ sic ] a\tyes\n{c}\tno\n"),
    (read_text_examples, "csv", 'text,label\n"a, ""b""",yes\nc,no\n'),
    (read_text_examples, "jsonl", json.dumps(ROW) + "\n\n" + json.dumps(ROW) + "\n"),
    (read_text_examples, "json", json.dumps([ROW, ROW], indent=1)),
    (read_tagged_examples, "conll", "Ann B-PER\nran O\n\nc O\n"),
    (read_tagged_examples, "jsonl", json.dumps(WORDS) + "\n" + json.dumps(WORDS) + "\n"),
    (read_question_examples, "json", json.dumps(SQUAD)),
    (read_question_examples, "json", json.dumps(SQUAD, indent=2)),
    (read_question_examples, "jsonl", json.dumps(QUESTION) + "\n" + json.dumps(QUESTION)),
    (read_choice_examples, "jsonl", json.dumps(CHOICE) + "\n" + json.dumps(CHOICE)),
    (read_choice_examples, "csv", "text,choice1,choice2,label\na,b,c,1\n"),
    (read_choice_examples, "json", json.dumps(DREAM)),
    (read_choice_examples, "json", json.dumps(DREAM, indent=1)),
]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def fill(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return fill


def fifo(path: Path, data: bytes) -> Path:
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(data,)).start()
    return path


@pytest.mark.parametrize(("read", "ending", "text"), KINDS)
def test_a_pipe_is_read_like_a_file(
    tmp_path: Path, pipe: Callable[[bytes], None], read: Read, ending: str, text: str
) -> None:
    path = tmp_path / f"data.{ending}"
    path.write_text(text)
    want = [replace(one, origin=UNKNOWN_ORIGIN) for one in read(path)]
    assert want
    changed = b"\xef\xbb\xbf" + text.strip().replace("\n", "\r\n").encode()
    for number, data in enumerate((text.encode(), changed)):
        pipe(data)
        found = list(read("-"))
        assert {one.origin.file for one in found} == {"standard input"}
        assert [replace(one, origin=UNKNOWN_ORIGIN) for one in found] == want
        for name in (str(number), f"{number}.{ending}"):
            found = list(read(fifo(tmp_path / name, data)))
            assert [replace(one, origin=UNKNOWN_ORIGIN) for one in found] == want


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (read_text_examples, b"text\tlabel\na\tyes\nc\n", ("input:3", "1")),
        (read_text_examples, b'{"text": "a", "label": 1}\n{', ("input:2", "JSON")),
        (read_text_examples, b"", "standard input"),
        (read_text_examples, b"\n \n", "standard input"),
        (read_text_examples, b"\x1f\x8b", ("input:1", "gzip")),
        (read_tagged_examples, b"a O\nb\n", ("input:2", "1", "2")),
        (read_question_examples, b"which?\ta b\n", ("input:1", "JSON")),
        (read_question_examples, b'{"data":\n"\xff"}', ("input:2", "UTF-8")),
        (read_choice_examples, b'{"text": "a"}', "input:1"),
    ],
)
def test_errors_of_a_pipe_have_line_numbers(
    pipe: Callable[[bytes], None], read: Read, data: bytes, message: str
) -> None:
    pipe(data)
    with raises(InputError, message):
        list(read("-"))


def test_a_pipe_is_read_lazily(pipe: Callable[[bytes], None]) -> None:
    pipe(b"text\tlabel\n" + b"a\tyes\n" * 100_000)
    assert next(read_text_examples("-")).text == "a"
    assert sys.stdin.buffer.tell() < 20_000
    assert not sys.stdin.closed
