import json
import lzma
from pathlib import Path

import pytest

from cloze.text.tokenizer import Tokenizer
from helpers import check_mentions


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "word", "char"])
def test_every_kind_is_learned_and_opens_again(
    run, corpus: Path, tmp_path: Path, kind: str
) -> None:
    done = run(
        "vocabulary", corpus, "--out", tmp_path / kind, "--kind", kind, "--size", "300", "--json"
    )
    assert done.returncode == 0, done.stderr
    tokenizer = Tokenizer.load(tmp_path / kind)
    assert json.loads(done.stdout) == {
        "folder": str(tmp_path / kind),
        "kind": kind,
        "size": tokenizer.vocab_size,
        "lowercase": kind in ("wordpiece", "word"),
    }
    assert tokenizer.vocab_size <= 300
    assert done.stderr == ""  # no progress where nobody looks


def test_options_reach_the_verb(run, corpus: Path, tmp_path: Path) -> None:
    options = ["--size", "900", "--keep-case", "--byte-fallback", "--strip-accents"]
    options += ["--min-count", "1"]
    done = run("vocabulary", corpus, "--out", tmp_path / "v", *options)
    assert done.returncode == 0, done.stderr
    assert "kind\twordpiece\n" in done.stdout
    tokenizer = Tokenizer.load(tmp_path / "v")
    assert not tokenizer.lowercase
    assert tokenizer.encode("Café").ids == tokenizer.encode("Cafe").ids
    assert tokenizer.unk_token not in tokenizer.encode("\N{OGHAM LETTER BEITH} Café").tokens


def test_files_globs_and_pipes_give_the_same(run, corpus: Path, tmp_path: Path) -> None:
    text = (corpus / "a.txt").read_text(encoding="utf-8")
    packed = tmp_path / "b.jsonl.xz"
    lines = [json.dumps({"id": 1, "body": line}) for line in text.splitlines()]
    packed.write_bytes(lzma.compress("\n".join(lines).encode()))
    inputs = {"folder": corpus, "glob": f"{corpus}/*.txt", "packed": packed, "pipe": "-"}
    for name, source in inputs.items():
        done = run("vocabulary", source, "--out", tmp_path / name, "--size", "120", stdin=text)
        assert done.returncode == 0, done.stderr
    written = [(tmp_path / name / "tokenizer.json").read_bytes() for name in inputs]
    assert written == written[:1] * len(inputs)


def test_what_is_there_is_not_overwritten_unasked(run, corpus: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "tokenizer.json").write_text("precious")
    command = ["vocabulary", corpus, "--out", taken, "--size", "120"]
    done = run(*command)
    assert done.returncode == 1
    problem, fix = done.stderr.splitlines()
    check_mentions(problem, "error: ", taken, "exists")
    check_mentions(fix, "fix: ", "--force")
    assert (taken / "tokenizer.json").read_text() == "precious"
    assert run(*command, "--force").returncode == 0
    assert Tokenizer.load(taken).vocab_size <= 120


def test_bad_rows_end_it_or_are_counted(run, corpus: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\n\xff\n")
    command = ["vocabulary", corpus, bad, "--size", "120", "--out", tmp_path / "out"]
    done = run(*command)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {bad}:2: ")
    check_mentions(done.stderr, "UTF-8")
    assert not (tmp_path / "out").exists()
    done = run(*command, "--skip-bad")
    assert done.returncode == 0
    check_mentions(done.stderr.splitlines()[-1], "1")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--kind", "unigram"], 2, "unigram"),
        (["--size", "3"], 1, ("error: ", "size", "3")),
        (
            ["--text-column", "x", "--kind", "word", "--byte-fallback"],
            1,
            ("byte_fallback", "wordpiece"),
        ),
    ],
)
def test_impossible_wishes_are_refused(
    run, corpus: Path, tmp_path: Path, options: list[str], code: int, message: str
) -> None:
    done = run("vocabulary", corpus, "--out", tmp_path / "out", *options)
    assert done.returncode == code
    check_mentions(done.stderr, message)
    assert not (tmp_path / "out").exists()
