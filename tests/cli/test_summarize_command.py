"""`cloze summarize`, and training and evaluation of summaries, as a user runs them."""

import json

import pytest

from helpers import check_mentions
from translators import TEXTS

SMALL = [
    f"--set=model.{name}"
    for name in ("hidden_size=32", "num_layers=1", "intermediate_size=32", "max_positions=64")
] + ["--set=vocabulary.size=290", "--max-length=20", "--steps=2", "--quiet"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("articles") / "articles.jsonl"
    rows = [
        {"document": " ".join(TEXTS[n : n + 4]), "abstract": TEXTS[n + 1]} for n in range(0, 40, 4)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(run, data):
    out = data.with_name("run")
    flags = ("--train", data, "--dev", data, "--out", out, "--recipe", "decoder-summarize")
    made = run("finetune", "summarize", *flags, *SMALL, "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    assert (told["task"], told["metric"]) == ("summarize", "rouge_l")
    assert {"rouge_1", "rouge_2", "rouge_lsum", "lead_3_rouge_l"} <= told["scores"].keys()
    check_mentions(told["note"], "lead-3")
    return out


def test_texts_and_their_summaries(run, folder, data):
    lines = run("summarize", folder, "--file", data, "--max-length", "5").stdout.splitlines()
    assert len(lines) == 10
    made = run("summarize", folder, TEXTS[0], "", "--json", "--beam", "2", "--n-best", "2")
    one, blank = (json.loads(line) for line in made.stdout.splitlines())
    assert one["source"] == TEXTS[0]
    assert len(one["summaries"]) == 2
    assert blank["summaries"][0]["text"] == ""
    table = run("summarize", folder, TEXTS[0], "--beam", "2", "--n-best", "2").stdout
    assert table.splitlines()[0] == "summary\tscore"
    long = run("summarize", folder, " ".join(TEXTS), "--max-length", "3")
    check_mentions(long.stderr, "truncated", "44 tokens")
    wrong = run("summarize", folder, " ".join(TEXTS), "--truncation", "error")
    assert wrong.returncode == 1
    check_mentions(wrong.stderr, "44", "truncation")


def test_scores(run, folder, data):
    told = json.loads(run("evaluate", folder, data, "--truncation", "head", "--json").stdout)
    assert told["kind"] == "summarize"
    assert next(iter(told["scores"])) == "rouge_l"
    check_mentions(told["note"], "lead-3")
    wrong = run("evaluate", folder, data, "--target-column", "title")
    assert wrong.returncode == 1
    check_mentions(wrong.stderr, "title", "abstract")
    wrong = run("translate", folder, TEXTS[0])
    check_mentions(wrong.stderr, "translate", "summarize")
    assert wrong.returncode == 1


def test_free_labels(run, tmp_path):
    """Body and lead of documents, in one file of running text."""
    text = tmp_path / "wiki.txt"
    documents = [
        f"Title {n}\n{TEXTS[n]} {TEXTS[n + 1]} {TEXTS[n + 2]}\n{TEXTS[n + 3]}" for n in range(9)
    ]
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    flags = ("--lead-as-summary", "--train", text, "--out", tmp_path / "run")
    made = run("finetune", "summarize", *flags, "--recipe", "decoder-summarize", *SMALL, "--json")
    assert made.returncode == 0, made.stderr
    wrong = run("finetune", "translate", *flags, "--recipe", "decoder-translate")
    assert wrong.returncode == 1
    check_mentions(wrong.stderr, "lead_as_summary", "summarize")
