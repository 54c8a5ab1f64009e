"""All commands that read files also read pipes, with any line ends, byte-order marks and blanks."""

import json
import os
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from cloze.checkpoint.task import Task
from cloze.cli.app import app
from grams import text_model
from helpers import check_mentions, tiny_model, word_model
from translators import TEXTS, translator

LINES = "the cat sat .\n\na b\n"
CHOICE = {"text": "a", "options": ["b", "c"], "label": 1}
QUESTION = {
    "id": "1",
    "question": "cat",
    "context": "the cat sat",
    "answers": {"text": ["cat"], "answer_start": [4]},
}
SEVERAL = "".join(json.dumps(one) + "\n" for one in (QUESTION, QUESTION))
OPTIONS = "".join(json.dumps(one) + "\n" for one in (CHOICE, CHOICE))
SOURCES = f"{TEXTS[0]}\n\n{TEXTS[1]}\n"
PAIRS = "a\tno\n\nthe cat\tyes\n"

# the verb and its model, what stands before the file and behind it, its ending, what is in it
CASES = {
    "classify": (["classify", "sequence"], ["--file"], [], "txt", LINES),
    "classify, a column": (
        ["classify", "sequence"],
        ["--file"],
        ["--text-column", "1", "--pair-column", "2"],
        "tsv",
        PAIRS,
    ),
    "tag": (["tag", "token"], ["--file"], [], "txt", LINES),
    "embed": (["embed", "bare"], ["--file"], [], "txt", LINES),
    "fill": (["fill", "mlm"], ["--file"], [], "txt", "the [MASK]\n\na [MASK] c\n"),
    "tokenize": (["tokenize", "bare"], ["--file"], [], "txt", LINES),
    "answer": (["answer", "span"], ["--file"], [], "jsonl", SEVERAL),
    "choose": (["choose", "choice"], ["--file"], [], "jsonl", OPTIONS),
    "suggest": (["suggest", "ngram"], ["--file"], [], "txt", LINES),
    "score": (["score", "mlm"], ["--file"], [], "txt", LINES),
    "score, pairs": (["score", "mlm"], [], ["--minimal-pairs"], "tsv", PAIRS),
    "translate": (["translate", "translator"], ["--file"], [], "txt", SOURCES),
    "evaluate, texts": (["evaluate", "sequence"], [], [], "tsv", "text\tlabel\n" + PAIRS),
    "evaluate, tags": (["evaluate", "token"], [], [], "conll", "a B-X\nb I-X\n\nc O\n"),
    "evaluate, answers": (["evaluate", "span"], [], [], "jsonl", SEVERAL),
    "evaluate, choices": (["evaluate", "choice"], [], [], "jsonl", OPTIONS),
    "evaluate, language": (["evaluate", "ngram"], [], [], "txt", LINES),
    "evaluate, translations": (["evaluate", "translator"], [], ["target"], "txt", SOURCES),
    "evaluate, words": (["evaluate", "vectors"], [], [], "txt", ": odd\n\nman king woman queen\n"),
    "compare": (["compare", "sequence"], [], [], "tsv", "text\tlabel\n" + PAIRS),
    "compare, translations": (["compare", "translator"], [], ["target"], "txt", SOURCES),
}  # fmt: skip
VARYING = ("seconds", "worst")  # times, and where an example stood


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    tiny_model().save(folder / "bare")
    tiny_model("mlm").save(folder / "mlm")
    tiny_model("sequence", task=Task(name="classify")).save(folder / "sequence")
    tiny_model("token", labels=("O", "B-X", "I-X")).save(folder / "token")
    tiny_model("span", labels=("LABEL_0", "LABEL_1")).save(folder / "span")
    tiny_model("choice").save(folder / "choice")
    text_model(3).save(folder / "ngram")
    translator("learned").save(folder / "translator")
    words = ("man", "king", "woman", "queen", "cat")
    numbers = np.array([[1, 0, 1], [1, 0, 9], [0, 1, 1], [0, 1, 9], [0, 5, -3]], np.float32)
    word_model(words=words, vectors=numbers).save(folder / "vectors")
    (folder / "target").write_text(SOURCES)
    return folder


def told(place, case, source, stdin=None):
    (verb, model), before, behind, _, _ = CASES[case]
    behind = [str(place / one) if one == "target" else one for one in behind]
    asked = [verb, str(place / model), *before, str(source), *behind, "--json"]
    ran = CliRunner().invoke(app, asked, input=stdin)
    assert ran.exit_code == 0, ran.output
    return [_plain(json.loads(line)) for line in ran.stdout.splitlines()]


def _plain(found):
    """Without what differs from one run to the next, and the names of scores without the file's."""
    if isinstance(found, dict):
        return {
            name.replace("standard input ", "data "): _plain(one)
            for name, one in found.items()
            if name not in VARYING
        }
    return [*map(_plain, found)] if isinstance(found, list) else found


@pytest.mark.parametrize("case", CASES)
def test_a_pipe_reads_as_a_file_whatever_its_lines_end_in(place, tmp_path, case):
    *_, ending, text = CASES[case]
    changed = b"\xef\xbb\xbf" + text.removesuffix("\n").replace("\n", "\r\n").encode()
    path, pipe = tmp_path / f"data.{ending}", tmp_path / "pipe"
    path.write_text(text)
    want = told(place, case, path)
    assert want
    path.write_bytes(changed)
    assert told(place, case, path) == want
    assert told(place, case, "-", stdin=text) == want
    assert told(place, case, "-", stdin=changed) == want
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(changed,)).start()
    assert told(place, case, pipe) == want


def test_the_context_of_an_answer_is_read_as_lines_are(place):
    asked = ("answer", str(place / "span"), "cat", "-", "--json")
    first, second = (
        CliRunner().invoke(app, asked, input=text)
        for text in ("the cat\nsat", b"\xef\xbb\xbfthe cat\r\nsat\r\n")
    )
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout
    bad = CliRunner().invoke(app, asked, input=b"the cat\n\xff\n")
    assert bad.exit_code == 1
    check_mentions(bad.stderr, "standard input:2: ", "UTF-8")


def test_finetune_learns_from_what_is_piped_in(place, tmp_path):
    rows = "sentence\tlabel\n" + "a b\tyes\nc d\tno\n" * 8
    fast = ("--steps", "2", "--batch-size", "4", "--device", "cpu", "--json")
    asked = ("finetune", "classify", str(place / "bare"), "--train", "-", *fast)
    ran = CliRunner().invoke(
        app, [*asked, "--set", "data.hold_out=0.0", "--out", str(tmp_path / "m")], input=rows
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["labels"] == ["no", "yes"]
    sides = ("-", str(place / "target"))
    asked = ("finetune", "translate", "--train", *sides, "--dev", *sides)
    ran = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "t")], input=SOURCES)
    assert ran.exit_code == 1
    check_mentions(ran.stderr, "standard input", "twice")
