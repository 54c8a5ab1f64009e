"""`cloze evaluate`, `compare` and `glue`, as a user runs them."""

import json

import pytest

import cloze
from cloze.checkpoint.task import Task
from cloze.metrics.names import metric_label
from helpers import check_mentions, scramble, tiny_model

ROWS = [("a b", "no"), ("the cat sat", "yes"), ("c d", "no"), ("cat", "yes"), ("b a", "yes")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two classifiers, a model for pairs' data, and labelled files."""
    folder = tmp_path_factory.mktemp("judge")
    for name, seed in (("one", 0), ("two", 3)):
        model = tiny_model("sequence", task=Task(name="classify", truncation="head"))
        scramble(model.module, seed=seed, scale=0.5)
        model.save(folder / name)
    tiny_model("token", labels=("O", "B-X", "I-X")).save(folder / "tagger")
    tiny_model("span", labels=("LABEL_0", "LABEL_1")).save(folder / "reader")
    tiny_model().save(folder / "bare")
    tiny_model("mlm").save(folder / "words")
    (folder / "held.txt").write_text("the cat sat. a b c.\nd e f.\n\na b. the cats sat.\n")
    (folder / "scored.tsv").write_text("a b\tb a\t4.5\nthe cat\tc d\t1\ncat\tcat sat\t3.5\n")
    rows = "".join(f"{text}\t{label}\n" for text, label in ROWS)
    (folder / "dev.tsv").write_text(f"text\tlabel\n{rows}")
    (folder / "bad.tsv").write_text(f"text\tlabel\n{rows}d\tmaybe\n")
    pairs = "".join(f"{text}\t{text[::-1]}\t{label}\n" for text, label in ROWS)
    (folder / "pairs.tsv").write_text(f"sentence1\tsentence2\tlabel\n{pairs}")
    (folder / "tags.conll").write_text("a B-X\nb I-X\nc O\n\nd O\n")
    question = {
        "id": "q1",
        "question": "the cat",
        "context": "a b cat sat",
        "answers": {"text": ["cat"], "answer_start": [4]},
    }
    (folder / "q.jsonl").write_text(json.dumps(question) + "\n")
    return folder


def lines(ran):
    assert ran.returncode == 0, ran.stderr
    return [line.split("\t") for line in ran.stdout.splitlines()]


def test_evaluate(run, place, tmp_path):
    out, page = tmp_path / "p.jsonl", tmp_path / "p.html"
    ran = run("evaluate", place / "one", place / "dev.tsv", "--predictions", out, "--report", page)
    assert f"report: {page}" in ran.stderr
    model = cloze.load(place / "one", device="cpu")
    made = cloze.evaluate(model, place / "dev.tsv")
    found = dict(line for line in lines(ran) if len(line) == 2)
    for name, value in made.scores.items():
        assert found[metric_label(name)] == f"{value:.4f}"
    assert found["examples"] == "5"
    worst = made.worst_errors(1)[0]
    assert [worst.text, worst.gold, worst.predicted] in [line[:3] for line in lines(ran)]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["text"], row["gold"]) for row in rows] == ROWS
    assert [row["predicted"]["label"] for row in rows] == [one.label for one in made.predictions]
    assert "one on dev.tsv" in page.read_text()


@pytest.mark.parametrize("verb", ["evaluate", "compare"])
def test_a_report_is_a_page(run, place, tmp_path, verb):
    ran = run(verb, place / "no-model", place / "dev.tsv", "--report", tmp_path / "p.xyz")
    assert ran.returncode == 1
    check_mentions(ran.stderr, "p.xyz", ".html")


def test_evaluate_json(run, place):
    ran = run("evaluate", place / "one", place / "pairs.tsv", "--swap", "--worst", "1", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    model = cloze.load(place / "one", device="cpu")
    made = cloze.evaluate(model, place / "pairs.tsv", swap=True)
    assert found["scores"] == pytest.approx(made.scores)
    assert found["swapped"]["agreement"] == made.swapped.agreement
    assert len(found["worst"]) == min(1, len(made.errors))


def test_evaluate_tags_and_answers(run, place, tmp_path):
    ran = run(
        "evaluate", place / "tagger", place / "tags.conll", "--predictions", tmp_path / "p.tsv"
    )
    assert {"F1", "precision", "recall"} <= {line[0] for line in lines(ran)}
    words = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()]
    assert [word[:2] for word in words if len(word) == 3] == [
        ["a", "B-X"],
        ["b", "I-X"],
        ["c", "O"],
        ["d", "O"],
    ]
    ran = run(
        "evaluate", place / "reader", place / "q.jsonl", "--predictions", tmp_path / "p.json",
        "--chinese",
    )  # fmt: skip
    assert {"F1", "exact match"} <= {line[0] for line in lines(ran)}
    assert list(json.loads((tmp_path / "p.json").read_text())) == ["q1"]
    assert ["rules", "CMRC's"] in lines(ran)


def test_evaluate_bad_rows(run, place):
    ran = run("evaluate", place / "one", place / "bad.tsv", "--skip-bad")
    assert dict(line for line in lines(ran) if len(line) == 2)["examples"] == "5"
    check_mentions(ran.stderr, "bad.tsv:7", "'maybe'")
    check_mentions(ran.stderr, "1 inputs", "majority baseline")


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("bare", ["dev.tsv"], ("dev.tsv", "fine-tune")),
        ("one", ["bad.tsv"], ("bad.tsv:7", "'maybe'")),
        ("one", ["dev.tsv", "--predictions", "p.csv"], ("p.csv", ".jsonl")),
    ],
)
def test_evaluate_mistakes(run, place, monkeypatch, model, arguments, message):
    monkeypatch.chdir(place)
    ran = run("evaluate", model, *arguments)
    assert ran.returncode == 1
    check_mentions(ran.stderr, message)
    assert "fix: " in ran.stderr
    assert "Traceback" not in ran.stderr


def test_compare(run, place, tmp_path):
    page = tmp_path / "c.html"
    ran = run(
        "compare", place / "one", place / "two", place / "dev.tsv", "--resamples", "50",
        "--report", page,
    )  # fmt: skip
    head, first, second = lines(ran)
    models = [place / "one", place / "two"]
    made = cloze.compare(models, place / "dev.tsv", resamples=50, device="cpu")
    assert head == [metric_label(column) for column in made.columns]
    expected = [["" if cell is None else str(cell) for cell in row[:-1]] for row in made.rows()]
    assert [first[:-1], second[:-1]] == expected
    check_mentions(ran.stderr, "p", "two-sided")
    assert "2 models on dev.tsv" in page.read_text()
    ran = run(
        "compare", place / "one", "--data", place / "dev.tsv", "--resamples", "5", "--json",
    )  # fmt: skip
    found = json.loads(ran.stdout)
    assert [one["model"] for one in found["models"]] == [str(place / "one")]
    assert found["models"][0]["difference"] is None


def test_compare_without_a_model(run, place):
    ran = run("compare", place / "dev.tsv")
    assert ran.returncode == 2
    check_mentions(ran.stderr, "model", "data")


def test_glue(run, place, tmp_path):
    folder = tmp_path / "data" / "SST-2"
    folder.mkdir(parents=True)
    rows = "".join(f"{text}\t{label == 'yes':d}\n" for text, label in ROWS)
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(f"sentence\tlabel\n{rows}")
    (tmp_path / "data" / "RTE").mkdir()
    (tmp_path / "data" / "RTE" / "dev.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\tc\n")
    asked = ["glue", place / "bare", "--data", tmp_path / "data", "--out", tmp_path / "out"]
    ran = run(*asked, "--epochs", "1", "--batch-size", "4", "--device", "cpu")
    head, first, second, mean = lines(ran)
    assert head == [
        "task",
        "metrics",
        "score",
        "±",
        "baseline",
        "training",
        "dev",
        "seconds",
        "note",
    ]
    assert (first[0], first[5:7], first[8]) == ("SST-2", ["5", "5"], "")
    assert (second[0], second[8]) == ("RTE", "no training data")
    assert mean[:3] == ["mean", "of 1 tasks", first[2]]
    assert cloze.load(tmp_path / "out" / "SST-2").labels == ("0", "1")
    ran = run(*asked, "--epochs", "1", "--batch-size", "4", "--json")
    found = json.loads(ran.stdout)
    assert [row["note"] for row in found["rows"]] == ["trained before", "no training data"]
    assert f"{100 * found['score']:.2f}" == first[2]


def test_a_model_without_a_task(run, place, tmp_path):
    made = cloze.evaluate(
        cloze.load(place / "words", device="cpu"), place / "held.txt", max_length=16
    )
    asked = ("evaluate", place / "words", place / "held.txt", "--max-length", "16")
    found = dict(lines(run(*asked)))
    for name, value in made.scores.items():
        assert found[metric_label(name)] == f"{value:.4f}"
    said = json.loads(run(*asked, "--json", "--report", tmp_path / "page.html").stdout)
    assert said["scores"] == made.scores
    assert "MLM accuracy" in (tmp_path / "page.html").read_text()
    refused = run(*asked, "--worst", "3")
    assert refused.returncode == 1
    check_mentions(refused.stderr, "worst")


def test_vectors_on_scored_pairs(run, place, tmp_path):
    out = tmp_path / "p.tsv"
    ran = run("evaluate", place / "bare", place / "scored.tsv", "--predictions", out)
    made = cloze.evaluate(cloze.load(place / "bare", device="cpu"), place / "scored.tsv")
    found = dict(line for line in lines(ran) if len(line) == 2)
    assert found["Spearman correlation"] == f"{made.scores['spearman']:.4f}"
    rows = [line.split("\t") for line in out.read_text().splitlines()[1:]]
    told = [one.score for one in made.predictions]
    assert [float(row[4]) for row in rows] == pytest.approx(told, abs=1e-5)
    named = run("compare", place / "bare", place / "words", place / "scored.tsv", "--json")
    assert [one["model"] for one in json.loads(named.stdout)["models"]] == [
        str(place / "bare"),
        str(place / "words"),
    ]
