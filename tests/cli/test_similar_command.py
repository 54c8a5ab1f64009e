import json

import numpy as np
import pytest

from cloze.checkpoint.word2vec import export_vectors
from helpers import check_mentions, word_model

PLACES = {"man": (1, 0.1), "woman": (-1, 0.1), "king": (1, 2), "queen": (-1, 2), "cabbage": (0, -3)}


@pytest.fixture(scope="module")
def words():
    return word_model(words=list(PLACES), vectors=np.array(list(PLACES.values()), np.float32))


@pytest.fixture(scope="module")
def folder(words, tmp_path_factory):
    return words.save(tmp_path_factory.mktemp("similar") / "words")


def test_neighbours_sums_and_pictures(run, folder, tmp_path):
    done = run("similar", folder, "king", "man", "--top", "1")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[:2] for row in rows] == [["query", "word"], ["king", "queen"], ["man", "king"]]

    pictures = ["--plot", tmp_path / "w.svg", "--plot-vectors", tmp_path / "c.svg"]
    added = run(
        "similar", folder, "king", "woman", "--minus", "man", "--top", "1", "--json", *pictures
    )
    found = json.loads(added.stdout)
    assert found["query"] == "king + woman − man"
    assert found["words"][0]["word"] == "queen"
    assert (tmp_path / "w.svg").read_text().count("<circle") == 4
    assert ">king<" in (tmp_path / "c.svg").read_text()


def test_an_analogy_from_a_file_and_the_odd_one(run, folder, words, tmp_path):
    file = export_vectors(words.module, tmp_path / "words.vec")
    asked = run("similar", file, "--limit", "4", "--analogy", "man", "king", "woman", "--top", "1")
    assert asked.stdout.splitlines()[1].startswith("queen\t")
    odd = run("similar", folder, "-", "--odd", "--json", stdin="king\nqueen\ncabbage\n")
    told = json.loads(odd.stdout)
    assert (told["query"], told["word"]) == ("king, queen, cabbage", "cabbage")


def test_how_alike_two_words_are(run, folder):
    told = run("similar", folder, "king", "queen", "--between")
    assert told.stdout.splitlines() == ["word\tword\tcosine", "king\tqueen\t0.6000"]
    told = json.loads(run("similar", folder, "king", "queen", "--between", "--json").stdout)
    assert told == {"first": "king", "second": "queen", "cosine": pytest.approx(0.6)}
    alone = run("similar", folder, "king", "--between")
    assert alone.returncode == 2
    check_mentions(alone.stderr, "--between", "two words", "1")


def test_files_without_a_first_line(run, folder, tmp_path):
    glove = tmp_path / "glove.txt"
    made = run("export", "word2vec", folder, glove, "--no-header")
    assert made.returncode == 0, made.stderr
    assert glove.read_text().startswith("man 1 0.1")
    asked = run("similar", glove, "king", "--top", "1", "--no-header")
    assert asked.stdout.splitlines()[1].startswith("queen\t")
    (tmp_path / "numbers.txt").write_text("7 1\n8 2\n")  # words that look like a header
    asked = run("similar", tmp_path / "numbers.txt", "7", "--top", "1", "--no-header")
    assert asked.stdout.splitlines()[1].startswith("8\t")
    binary = run("export", "word2vec", folder, tmp_path / "x.bin", "--no-header")
    assert binary.returncode == 1
    check_mentions(binary.stderr, "binary", "header")


def test_files_are_judged_as_folders_are(run, folder, words, tmp_path):
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    for file in (first, second):
        export_vectors(words.module, file, header=file is first)
    questions, pairs = tmp_path / "questions.txt", tmp_path / "pairs.csv"
    questions.write_text("man king woman queen\nwoman queen man king\n")
    pairs.write_text("man,king,9\nman,woman,3\nking,cabbage,1\n")
    ran = run("evaluate", first, questions, "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["scores"]["questions accuracy"] == 1.0
    ran = run("compare", first, folder, second, questions, pairs, "--json", "--resamples", "20")
    assert ran.returncode == 0, ran.stderr
    made = json.loads(ran.stdout)
    assert [one["model"] for one in made["models"]] == [str(first), str(folder), str(second)]
    assert made["models"][2]["scores"]["questions accuracy"]["value"] == 1.0
    assert made["models"][2]["difference"]["value"] == 0.0
    assert run("compare", first, questions, "--dtype", "bf16").returncode == 1


def test_a_picture_is_svg(run, folder, tmp_path):
    for flag in ("--plot", "--plot-vectors"):
        made = run("similar", folder, "king", flag, tmp_path / "a.txt")
        assert made.returncode == 1
        check_mentions(made.stderr, "a.txt", ".svg")
        assert made.stdout == ""


def test_a_word_without_a_vector_does_not_stop_the_others(run, folder, tmp_path):
    words = "king\nquen\nman\n"
    picture = tmp_path / "w.svg"
    asked = ("similar", folder, "-", "--top", "1", "--plot", picture)
    done = run(*asked, stdin=words)
    assert done.returncode == 1
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["query", "king", "man"]
    check_mentions(done.stderr, "error: ", "'quen'")
    assert ">king<" in picture.read_text()
    told = run(*asked, "--json", "--force", stdin=words)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["query"] for line in lines] == ["king", "quen", "man"]
    assert ["error" in line for line in lines] == [False, True, False]
    passed = run(*asked, "--json", "--force", "--skip-bad", stdin=words)
    assert passed.returncode == 0, passed.stderr
    assert [json.loads(line)["query"] for line in passed.stdout.splitlines()] == ["king", "man"]
    check_mentions(passed.stderr.splitlines()[-1], "1")
    none = run("similar", folder, "quen", "cow", "--plot-vectors", tmp_path / "c.svg")
    assert none.returncode == 1
    assert not (tmp_path / "c.svg").exists()


def test_what_cannot_be_asked(run, folder):
    unknown = run("similar", folder, "quen")
    assert unknown.returncode == 1
    check_mentions(unknown.stderr, "error: ", "'quen'", "fix: ", "'queen'")
    both = run("similar", folder, "king", "--analogy", "man", "king", "woman")
    assert both.returncode == 2
    check_mentions(both.stderr, "--analogy")
