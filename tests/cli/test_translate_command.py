"""`cloze translate` as a user runs it."""

import json

import pytest

from helpers import check_mentions
from translators import TEXTS, translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return translator("learned").save(tmp_path_factory.mktemp("translators") / "model")


def test_a_sentence_and_its_best(run, folder, tmp_path):
    picture = tmp_path / "lines.svg"
    flags = ("--n-best", "2", "--align", picture, "--lines")
    several = run("translate", folder, TEXTS[0], "--beam", "2", *flags)
    assert several.returncode == 0, several.stderr
    header, first, second = several.stdout.splitlines()
    assert header == "translation\tscore"
    assert float(first.rpartition("\t")[2]) >= float(second.rpartition("\t")[2])
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    asked = ("translate", folder, TEXTS[0], "--beam", "2", "--json")
    told = json.loads(run(*asked).stdout)
    assert told["source"] == TEXTS[0]
    assert f"{told['translations'][0]['score']:.4f}" == first.rpartition("\t")[2]
    assert told["translations"][0]["alignment"] is None
    told = json.loads(run(*asked, "--align", picture, "--force").stdout)
    assert told["translations"][0]["alignment"]["source"][-1] == "⏎"


def test_the_precision_is_heard(run, folder):
    half = run("translate", folder, TEXTS[2], "--beam", "1", "--json", "--dtype", "bfloat16")
    assert half.returncode == 0, half.stderr
    whole = run("translate", folder, TEXTS[2], "--beam", "1", "--json")
    ours, theirs = (json.loads(one.stdout)["translations"][0]["score"] for one in (half, whole))
    assert ours == pytest.approx(theirs, rel=0.1)
    assert ours != theirs
    wrong = run("translate", folder, TEXTS[0], "--dtype", "bfloat61")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    check_mentions(wrong.stderr, "dtype", "'bfloat61'", "bfloat16")


def test_the_best_of_several_say_what_they_translate(run, folder, tmp_path):
    lines = f"{TEXTS[0]}\n\n{TEXTS[1]}\n"
    made = run("translate", folder, "--n-best", "2", "--beam", "2", stdin=lines)
    rows = [line.split("\t") for line in made.stdout.splitlines()]
    assert [row[0] for row in rows] == ["source", TEXTS[0], TEXTS[0], "", TEXTS[1], TEXTS[1]]
    assert [len(row) for row in rows] == [3, 3, 3, 1, 3, 3]
    assert run("translate", folder, "", "--n-best", "2").stdout == "translation\tscore\n\n"
    (tmp_path / "empty.en").touch()
    none = run("translate", folder, "--n-best", "2", "--file", tmp_path / "empty.en")
    assert (none.returncode, none.stdout) == (0, "source\ttranslation\tscore\n")


def test_a_file_keeps_its_lines(run, folder, tmp_path):
    source, out = tmp_path / "in.en", tmp_path / "out.de"
    long = " ".join(TEXTS[:9])
    source.write_text(f"{TEXTS[1]}\n\n{long}\n{TEXTS[2]}\n", encoding="utf-8")
    flags = ("--beam", "2", "--json", "--truncation", "error")
    made = run("translate", folder, "--file", source, "--out", out, *flags)
    assert made.returncode == 1
    assert json.loads(made.stdout) == {"out": str(out), "count": 3, "truncated": 0, "failed": 1}
    check_mentions(made.stderr, "3 of 4 lines", f"{source}:3: ", "sentence 3")
    lines = out.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[2] == lines[4] == ""
    assert lines[0]


def test_a_pipe_and_nothing_to_draw(run, folder, tmp_path):
    lines, heat = f"{TEXTS[0]}\n\n{TEXTS[1]}\n", tmp_path / "a.svg"
    made = run("translate", folder, "-", "--beam", "1", "--align", heat, stdin=lines)
    assert len(made.stdout.splitlines()) == 3
    assert heat.read_text(encoding="utf-8").startswith("<svg")
    check_mentions(made.stderr, heat, TEXTS[0])
    blank = run("translate", folder, "", "--align", tmp_path / "b.svg")
    assert blank.returncode == 1
    check_mentions(blank.stderr, "nothing to plot", "blank")


def test_what_is_too_long_is_said_and_the_rest_written_and_drawn(run, folder, tmp_path):
    long, out, heat = " ".join(TEXTS[:9]), tmp_path / "out.de", tmp_path / "a.svg"
    flags = ("--align", heat, "--beam", "1", "--truncation", "error")
    alone = run("translate", folder, long, "--out", out, *flags)
    assert alone.returncode == 1
    check_mentions(alone.stderr, "error: sentence 1")
    assert "nothing to plot" not in alone.stderr
    assert out.read_text(encoding="utf-8") == "\n"
    cut = run("translate", folder, long, "--align", heat, "--beam", "1", "--json")
    assert cut.returncode == 0, cut.stderr
    assert json.loads(cut.stdout)["truncated_chars"] > 0
    (line,) = cut.stderr.splitlines()
    check_mentions(line, "1 of 1 sentences", "characters were not read")
    assert heat.exists()


def test_a_picture_is_svg(run, folder, tmp_path):
    made = run("translate", folder, TEXTS[0], "--align", tmp_path / "a.png")
    assert made.returncode == 1
    check_mentions(made.stderr, "a.png", ".svg")
    assert made.stdout == ""


def test_lines_of_no_picture_are_refused(run, folder):
    made = run("translate", folder, TEXTS[0], "--lines")
    assert (made.returncode, made.stdout) == (1, "")
    check_mentions(made.stderr, "lines", "--align")
