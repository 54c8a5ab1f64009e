"""`cloze score`."""

import json

import pytest

import cloze
from helpers import tiny_model

PAIRS = [("the cat sat", "cat the sat"), ("a b", "b a"), ("the", "a")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model("mlm").save(tmp_path_factory.mktemp("score") / "model")


def test_a_row_for_each_text_or_token(run, folder):
    found = cloze.score(folder, ["the cats", "a"])
    ran = run("score", folder, "the cats", "a")
    header, *rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert header[0] == "text"
    assert [(row[0], int(row[1])) for row in rows] == [("the cats", 3), ("a", 1)]
    assert float(rows[0][2]) == pytest.approx(found[0].log_probability, abs=1e-3)
    ran = run("score", folder, "the cats", "--tokens", "--pll-metric", "within_word_l2r")
    (one,) = cloze.score(folder, ["the cats"], pll_metric="within_word_l2r")
    rows = [line.split("\t") for line in ran.stdout.splitlines()[1:]]
    assert [row[1] for row in rows] == [token.token for token in one.tokens]
    assert float(rows[1][2]) == pytest.approx(one.tokens[1].log_probability, abs=1e-3)


def test_minimal_pairs(run, folder, tmp_path):
    file = tmp_path / "pairs.tsv"
    rows = ["sentence_good\tsentence_bad", *("\t".join(pair) for pair in PAIRS)]
    file.write_text("\n".join(rows) + "\n")
    expected = cloze.score_pairs(folder, PAIRS)
    _, row = run("score", folder, file, "--minimal-pairs").stdout.splitlines()
    assert row.split("\t")[:2] == ["3", f"{expected.accuracy.value:.4f}"]
    told = json.loads(run("score", folder, file, "--minimal-pairs", "--json").stdout)
    assert told["count"] == 3
    assert [pair["good"] for pair in told["pairs"]] == [good for good, _ in PAIRS]
    assert told["accuracy"]["value"] == expected.accuracy.value


def test_rows_that_are_no_pairs(run, folder, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("a\tb\nalone\nc\td\n")
    ran = run("score", folder, file, "--minimal-pairs")
    assert ran.returncode == 1
    assert "pairs.tsv:2" in ran.stderr
    ran = run("score", folder, file, "--minimal-pairs", "--skip-bad", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["count"]) == (0, 2)
    assert "1" in ran.stderr
    ran = run("score", folder, "--minimal-pairs")
    assert ran.returncode == 2


def test_a_text_that_cannot_be_scored(run, folder):
    ran = run("score", folder, "a", "the [MASK]", "--json")
    assert ran.returncode == 1
    first, second = map(json.loads, ran.stdout.splitlines())
    assert "error" in second
    assert first["tokens"]
