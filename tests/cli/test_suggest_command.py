"""`cloze suggest` as a user runs it."""

import json

import pytest

import cloze
from cloze.checkpoint.ngram import save_arpa
from cloze.cli.format import BAR_WIDTH, format_bar
from grams import text_model
from helpers import check_mentions
from languages import neural_model
from translators import translator


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return text_model(3).save(tmp_path_factory.mktemp("models") / "ngram")


def test_a_table(run, folder):
    ran = run("suggest", folder, "the dog", "--top", "2")
    assert ran.returncode == 0, ran.stderr
    header, first, second = (line.split("\t") for line in ran.stdout.splitlines())
    assert header == ["word", "probability", "order", "computation"]
    assert first[2] == "3"
    assert first[3].startswith("p(· | the dog) 0.")
    assert float(first[1]) >= float(second[1])


def test_bars_are_drawn_in_eighths():
    assert format_bar(1.0) == "█" * BAR_WIDTH
    assert format_bar(0.0) == ""
    assert format_bar(1.5 / BAR_WIDTH) == "█▌"


def test_json_says_what_python_says(run, folder):
    ran = run("suggest", folder, "the mat", "--json", "--top", "3")
    said = json.loads(ran.stdout)
    found = cloze.suggest(cloze.load(folder), "the mat", top=3)
    assert said["unk_probability"] == found.unk_probability
    assert [(s["word"], s["probability"]) for s in said["suggestions"]] == [
        (s.word, s.probability) for s in found.suggestions
    ]
    assert said["suggestions"][0]["backoff_path"][-1]["context"] == list(
        found.suggestions[0].backoff_path[-1].context
    )


def test_a_neural_model(run, tmp_path):
    neural = neural_model("nnlm").save(tmp_path / "nnlm")
    ran = run("suggest", neural, "the cat", "--top", "3")
    assert ran.returncode == 0, ran.stderr
    header, *rows = (line.split("\t") for line in ran.stdout.splitlines())
    assert header == ["word", "probability"]
    said = json.loads(run("suggest", neural, "the cat", "--top", "3", "--json").stdout)
    assert [[s["word"], f"{s['probability']:.4f}"] for s in said["suggestions"]] == rows
    assert [s["backoff_path"] for s in said["suggestions"]] == [[]] * 3


def test_several_texts_in_one_table(run, folder):
    ran = run("suggest", folder, "the cat", "a dog", "--top", "2")
    rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert rows[0] == ["after", "word", "probability", "order", "computation"]
    assert [row[0] for row in rows[1:]] == ["the cat"] * 2 + ["a dog"] * 2


@pytest.mark.parametrize("name", ["x.arpa", "x.arpa.gz"])
def test_a_file_of_others(run, folder, tmp_path, name):
    file = save_arpa(cloze.load(folder), tmp_path / name)
    same = run("suggest", folder, "the dog", "--top", "2")
    assert run("suggest", file, "the dog", "--top", "2").stdout == same.stdout
    (tmp_path / "text.txt").write_text("the dog sat\n", encoding="utf-8")
    judged = run("evaluate", file, tmp_path / "text.txt", "--json")
    assert json.loads(judged.stdout)["scores"]["perplexity"] > 1
    compared = run("compare", folder, file, tmp_path / "text.txt")
    first, second = (line.split("\t") for line in compared.stdout.splitlines()[1:])
    assert first[1:-1] == second[1:-1]
    told, ours = (json.loads(run("info", one, "--json").stdout) for one in (file, folder))
    for key in ("family", "architecture", "parameters", "vocabulary", "total_parameters"):
        assert told[key] == ours[key]
    assert "tokenize" not in told["capabilities"]


def test_lines_piped_in(run, folder):
    ran = run("suggest", folder, "--json", "--top", "1", stdin="the cat\na dog\n")
    assert [json.loads(line)["text"] for line in ran.stdout.splitlines()] == ["the cat", "a dog"]


def test_what_is_wrong(run, folder, tmp_path):
    ran = run("suggest", folder, "the", "--top", "0")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "top", "0")
    other = translator().save(tmp_path / "translator")
    ran = run("suggest", other, "the")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "translator", "suggest", "translate, embed")
    ran = run("translate", folder, "the")
    check_mentions(ran.stderr, "n-gram", "translate")
    ran = run("similar", folder, "the")
    check_mentions(ran.stderr, "n-gram", "suggest, generate")
    ran = run("suggest", tmp_path / "nowhere", "the")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "error:", tmp_path / "nowhere")


def test_rows_that_cannot_be_read_are_passed_over_when_asked(run, folder, tmp_path):
    file = tmp_path / "t.txt"
    file.write_bytes(b"the dog\n\xff\nthe cat\n")
    ran = run("suggest", folder, "-f", file, "--json", "--skip-bad")
    assert ran.returncode == 0
    texts = [json.loads(line)["text"] for line in ran.stdout.splitlines()]
    assert texts == ["the dog", "the cat"]
    check_mentions(ran.stderr.splitlines()[-1], "1")


def test_words_are_appended_by_their_numbers(run, folder):
    text, numbers = "the", []
    for _ in range(2):
        words = [one.word for one in cloze.suggest(cloze.load(folder), text, top=3).suggestions]
        numbers.append(next(n for n, word in enumerate(words, 1) if word != "</s>"))
        text += f" {words[numbers[-1] - 1]}"
    lines = f"{numbers[0]}\nx\n9\n{numbers[1]}\n\n"
    ran = run("suggest", folder, "the", "--top", "3", "--interactive", stdin=lines)
    assert ran.returncode == 0, ran.stderr
    *tables, last = ran.stdout.splitlines()
    assert last == text
    assert sum(line.startswith("\tword\t") for line in tables) == 3
    assert [line.split("\t")[0] for line in tables[1:4]] == ["1", "2", "3"]
    check_mentions(ran.stderr, "'x' is not a number from 1 to 3", "'9'")


def test_choosing_words_ends_with_the_sentence_or_the_input(run, folder):
    ran = run("suggest", folder, "--interactive", stdin="1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "the"
    first = cloze.suggest(cloze.load(folder), "the dog slept").suggestions
    number = [one.word for one in first].index("</s>") + 1
    ran = run("suggest", folder, "the dog slept", "--interactive", stdin=f"{number}\n1\n")
    assert ran.stdout.splitlines()[-1] == "the dog slept"


@pytest.mark.parametrize("more", [["a"], ["--json"], ["--file", "x.txt"]])
def test_words_are_chosen_for_one_text(run, folder, more):
    ran = run("suggest", folder, "the", *more, "--interactive")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "--interactive", "one text")
