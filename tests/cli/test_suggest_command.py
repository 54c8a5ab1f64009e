"""`cloze suggest` as a user runs it."""

import json

import pytest

import cloze
from cloze.cli.suggest import WIDTH, _bar
from grams import text_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return text_model(3).save(tmp_path_factory.mktemp("models") / "ngram")


def test_a_table(run, folder):
    ran = run("suggest", folder, "the dog", "--top", "2")
    assert ran.returncode == 0, ran.stderr
    header, first, second = (line.split("\t") for line in ran.stdout.splitlines())
    assert header == ["word", "probability", "order", "how"]
    assert first[2] == "3"
    assert first[3].startswith("p(· | the dog) 0.")
    assert float(first[1]) >= float(second[1])


def test_bars_are_drawn_in_eighths():
    assert _bar(1.0) == "█" * WIDTH
    assert _bar(0.0) == ""
    assert _bar(1.5 / WIDTH) == "█▌"


def test_json_says_what_python_says(run, folder):
    ran = run("suggest", folder, "the mat", "--json", "--top", "3")
    said = json.loads(ran.stdout)
    found = cloze.suggest(cloze.load(folder), "the mat", top=3)
    assert said["unknown"] == found.unknown
    assert [(s["word"], s["probability"]) for s in said["suggestions"]] == [
        (s.word, s.probability) for s in found.suggestions
    ]
    assert said["suggestions"][0]["path"][-1]["context"] == list(
        found.suggestions[0].path[-1].context
    )


def test_lines_piped_in(run, folder):
    ran = run("suggest", folder, "--json", "--top", "1", stdin="the cat\na dog\n")
    assert [json.loads(line)["text"] for line in ran.stdout.splitlines()] == ["the cat", "a dog"]


def test_what_is_wrong(run, folder, tmp_path):
    ran = run("suggest", folder, "the", "--top", "0")
    assert (ran.returncode, "top is 0" in ran.stderr) == (1, True)
    ran = run("suggest", tmp_path / "nowhere", "the")
    assert ran.returncode == 1
    assert "error:" in ran.stderr
