"""`cloze translate` as a user runs it."""

import json

import pytest

from translators import TEXTS, translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return translator("learned").save(tmp_path_factory.mktemp("translators") / "model")


def test_a_sentence_and_its_best(run, folder, tmp_path):
    picture = tmp_path / "lines.svg"
    flags = ("--best", "2", "--align", picture, "--lines")
    several = run("translate", folder, TEXTS[0], "--beam", "2", *flags)
    assert several.returncode == 0, several.stderr
    header, first, second = several.stdout.splitlines()
    assert header == "translation\tscore"
    assert float(first.rpartition("\t")[2]) >= float(second.rpartition("\t")[2])
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    told = json.loads(run("translate", folder, TEXTS[0], "--beam", "2", "--json").stdout)
    assert told["source"] == TEXTS[0]
    assert f"{told['candidates'][0]['score']:.4f}" == first.rpartition("\t")[2]
    assert told["candidates"][0]["alignment"]["source"][-1] == "⏎"


def test_a_file_keeps_its_lines(run, folder, tmp_path):
    source, out = tmp_path / "in.en", tmp_path / "out.de"
    long = " ".join(TEXTS[:9])
    source.write_text(f"{TEXTS[1]}\n\n{long}\n{TEXTS[2]}\n", encoding="utf-8")
    made = run("translate", folder, "--file", source, "--out", out, "--beam", "2")
    assert made.returncode == 1
    assert "3 of 4 lines" in made.stderr
    assert "sentence 3 has" in made.stderr
    assert "split it, or choose a length policy" in made.stderr
    lines = out.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[2] == lines[4] == ""
    assert lines[0]


def test_a_pipe_and_nothing_to_draw(run, folder, tmp_path):
    lines, heat = f"{TEXTS[0]}\n\n{TEXTS[1]}\n", tmp_path / "a.svg"
    made = run("translate", folder, "-", "--beam", "1", "--align", heat, stdin=lines)
    assert len(made.stdout.splitlines()) == 3
    assert heat.read_text(encoding="utf-8").startswith("<svg")
    blank = run("translate", folder, "", "--align", tmp_path / "b.svg")
    assert blank.returncode == 1
    assert "there is nothing to draw" in blank.stderr
    assert "give a sentence that is not blank" in blank.stderr
