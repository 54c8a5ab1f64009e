"""`cloze explain saliency`: a page, values as JSON, and the texts of a file as JSON lines."""

import json

import pytest
from typer.testing import CliRunner

from cloze.cli.app import app
from helpers import check_mentions, tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_model("sequence").save(tmp_path_factory.mktemp("model") / "model"))


def run(*args, code=0):
    found = CliRunner().invoke(app, ["explain", "saliency", *map(str, args)])
    assert found.exit_code == code, found.output
    return found


def test_a_page_with_curves(folder, tmp_path):
    page = tmp_path / "saliency.html"
    run(folder, "a b c", "--faithfulness", "--random-orders", 2, "--html", page)
    text = page.read_text("utf-8")
    assert "token-saliency" in text
    assert "Deletion" in text
    run(folder, "a b c", "--html", page, code=1)  # it exists


def test_values(folder):
    found = json.loads(
        run(
            folder, "a b", "--pair", "c", "--target", "yes", "--method", "integrated", "--json"
        ).stdout
    )
    assert [one["name"] for one in found["targets"]] == ["yes"]
    assert found["pair"] == "c"
    assert found["steps"] == 50


def test_the_texts_of_a_file(folder, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("a b c\nd\ne f\n", "utf-8")
    lines = run(folder, "--file", file, "--json", "--target", "no").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["text"] for one in found] == ["a b c", "d", "e f"]
    assert [len(one["tokens"]) for one in found] == [5, 3, 4]


def test_two_texts_side_by_side(folder, tmp_path):
    found = json.loads(run(folder, "a b", "--against-text", "c d", "--json").stdout)
    assert [one["text"] for one in found["views"]] == ["a b", "c d"]


def test_mistakes(folder, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("a b c\n", "utf-8")
    check_mentions(run(folder, code=2).output, "TEXT", "--file")
    check_mentions(run(folder, "--file", file, code=2).output, "--json")
    check_mentions(run(folder, "a", "--file", file, "--json", code=2).output, "--file")
    page = ("--html", tmp_path / "x.html")
    check_mentions(run(folder, "--file", file, "--json", *page, code=2).output, "--html")
    check_mentions(run(folder, "a", "--target", "maybe", "--json", code=1).output, "no, yes")
