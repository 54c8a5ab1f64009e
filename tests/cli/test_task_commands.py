"""`classify`, `tag`, `answer` and `choose` as a user runs them.

One run of each is a process of its own; the rest go through the same door without its start.
"""

import json
import os
import pty
import subprocess
import sys
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

import cloze
from cloze.cli.app import app
from cloze.cli.outcomes import format_probability
from helpers import tiny_model

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LONG = "a b c d e f g h i j " * 4
TEXTS = ["the cat sat .", "cats, abc", "猫"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models = {
        "classify": tiny_model("sequence", labels=("bad", "fair", "good")),
        "number": tiny_model("sequence", labels=("n",), problem="number"),
        "tag": tiny_model("token", labels=LABELS),
        "places": tiny_model("token", labels=("B-geo-loc", "I-geo-loc")),
        "answer": tiny_model("span"),
        "choose": tiny_model("choice"),
    }
    return {name: model.save(place / name) for name, model in models.items()}


@pytest.fixture
def call(monkeypatch):
    """A command within this process; what it gives looks like a finished process."""
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(*arguments, stdin=""):
        ran = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
        if ran.exception and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        return subprocess.CompletedProcess(arguments, ran.exit_code, ran.stdout, ran.stderr)

    return invoke


@pytest.mark.parametrize(
    ("verb", "arguments", "key"),
    [
        ("classify", ["the cat"], "labels"),
        ("tag", ["the cat"], "spans"),
        ("answer", ["the cat", "a b c", "--top", "2"], "answers"),
    ],
)
def test_in_a_process_of_its_own(run, call, folders, verb, arguments, key):
    ran = run(verb, folders[verb], *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    assert key in json.loads(ran.stdout)
    assert call(verb, folders[verb], *arguments, "--json").stdout == ran.stdout


def lines_of(ran):
    assert ran.returncode == 0, ran.stderr
    return [line.split("\t") for line in ran.stdout.splitlines()]


def test_classify(call, folders):
    found = cloze.classify(cloze.load(folders["classify"]), TEXTS)
    lines = lines_of(call("classify", folders["classify"], *TEXTS))
    assert lines[0] == ["text", "label", "probability"]
    assert lines[1:] == [
        [text, one.label, f"{one.score:.4f}"] for text, one in zip(TEXTS, found, strict=True)
    ]
    ran = call("classify", folders["classify"], "--top", "3", "--json", stdin="\n".join(TEXTS))
    for line, one in zip(ran.stdout.splitlines(), found, strict=True):
        row = json.loads(line)["labels"]
        assert [each["label"] for each in row] == list(one.scores)
        assert row[0]["score"] == pytest.approx(one.score)
    lines = lines_of(call("classify", folders["number"], "the cat"))
    value = cloze.classify(cloze.load(folders["number"]), "the cat").score
    assert lines == [["text", "number"], ["the cat", f"{value:.4f}"]]


def test_classify_pairs(call, folders, tmp_path):
    model = cloze.load(folders["classify"])
    found = cloze.classify(model, "the cat", "a b")
    lines = lines_of(call("classify", folders["classify"], "the cat", "--pair", "a b"))
    assert lines[1] == ["the cat | a b", found.label, f"{found.score:.4f}"]
    table = tmp_path / "pairs.tsv"
    table.write_text("sentence1\tsentence2\tlabel\nthe cat\ta b\tunheard\ncats\tsat\tof\n")
    flags = ["--file", table, "--column", "sentence1", "--pair-column", "sentence2"]
    lines = lines_of(call("classify", folders["classify"], *flags))
    assert [line[0] for line in lines[1:]] == ["the cat | a b", "cats | sat"]
    assert lines[1][1:] == [found.label, f"{found.score:.4f}"]
    table.write_text("the cat\t0\na b\t1\n")
    lines = lines_of(call("classify", folders["classify"], "-f", table, "--column", "1"))
    assert [line[0] for line in lines[1:]] == ["the cat", "a b"]
    lines = lines_of(
        call("classify", folders["classify"], "-f", table, "--column", "1", "--pair", "a b")
    )
    assert lines[1] == ["the cat | a b", found.label, f"{found.score:.4f}"]


def test_the_bad_ones_are_told_and_the_others_go_on(call, folders, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text(f"a\n{LONG}\nb\n")
    ran = call("classify", folders["classify"], "-f", file)
    assert ran.returncode == 1
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines[1:]] == ["a", LONG, "b"]
    assert [bool(line[1]) for line in lines[1:]] == [True, False, True]
    assert f"error: {file}:2: the text has 42 pieces" in ran.stderr
    assert "fix: shorten it, or choose a length policy" in ran.stderr
    ran = call("tag", folders["tag"], "-f", file, "--json")
    assert ran.returncode == 1
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ["spans" in row for row in rows] == [True, False, True]
    assert "42 pieces" in rows[1]["error"]
    for policy in ("head+tail", "window"):
        for verb in ("classify", "tag"):
            ran = call(verb, folders[verb], "-f", file, "--policy", policy)
            assert ran.returncode == 0, ran.stderr


def test_what_was_cut_is_said(call, folders, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text(f"a\n{LONG}\n")
    for verb, name in (("classify", "truncated"), ("tag", "untagged")):  # in pieces, in words
        ran = call(verb, folders[verb], "-f", file, "--policy", "head", "--json")
        assert ran.returncode == 0
        assert [json.loads(line)[name] for line in ran.stdout.splitlines()] == [0, 18]
        assert "1 of 2 texts were cut to 24 pieces\n" in ran.stderr
        ran = call(verb, folders[verb], "-f", file, "--policy", "window", "--json")
        assert [json.loads(line)[name] for line in ran.stdout.splitlines()] == [0, 0]
        assert "cut" not in ran.stderr
    ran = call("answer", folders["answer"], LONG, "a b c", "--json")
    assert json.loads(ran.stdout)["truncated"] == 30  # of 40 pieces 10 are half of the model's room
    assert "1 of 1 questions were cut, or their contexts were\n" in ran.stderr
    ran = call("choose", folders["choose"], LONG, "b", "c", "--policy", "head")
    assert "1 of 1 questions were cut to 24 pieces\n" in ran.stderr


@pytest.mark.parametrize("verb", ["classify", "tag"])
def test_bad_rows_can_be_passed_over(call, folders, tmp_path, verb):
    file = tmp_path / "t.txt"
    file.write_bytes(f"a\n{LONG}\nb\n".encode() + b"\xff\n")
    ran = call(verb, folders[verb], "-f", file, "--skip-bad", "--json")
    assert ran.returncode == 0
    assert [json.loads(line)["text"] for line in ran.stdout.splitlines()] == ["a", "b"]
    assert "passed over 2 that could not be read" in ran.stderr
    ran = call(verb, folders[verb], "-f", file, "--json")
    assert ran.returncode == 1
    assert f"{file}:4: not UTF-8" in ran.stderr


@pytest.mark.parametrize("verb", ["classify", "tag", "answer", "choose"])
def test_no_header_before_an_error(call, folders, verb, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for file in (tmp_path / "nowhere.jsonl", empty):
        ran = call(verb, folders[verb], "-f", file)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert str(file) in ran.stderr


def test_small_probabilities_are_told_apart():
    numbers = (1.0, 0.12345, 0.001, 0.00094, 3.21e-7, 0.0)
    shown = ["1.0000", "0.1235", "0.0010", "9.4e-04", "3.2e-07", "0.0000"]
    assert [format_probability(number) for number in numbers] == shown


def test_tag(call, folders):
    model = cloze.load(folders["tag"])
    for how in ("first", "none"):
        ran = call("tag", folders["tag"], *TEXTS, "--aggregation", how)
        lines = lines_of(ran)
        assert lines[0] == ["text", "start", "end", "label", "probability", "span"]
        found = cloze.tag(model, TEXTS, aggregation=how)
        assert lines[1:] == [
            [str(n), str(s.start), str(s.end), s.label, f"{s.score:.4f}", s.text]
            for n, one in enumerate(found, 1)
            for s in one.spans
        ]
        rows = call("tag", folders["tag"], *TEXTS, "--aggregation", how, "--json").stdout
        for line, one in zip(rows.splitlines(), found, strict=True):
            assert json.loads(line)["spans"] == [asdict(span) for span in one.spans]


@pytest.mark.parametrize("name", ["tag", "places"])
def test_tag_on_a_terminal(folders, name):
    """The text itself, spans marked; nothing in it can steer the terminal."""
    text = "the cat\x1b[2J sat"
    ours, theirs = pty.openpty()
    ran = subprocess.run(
        [sys.executable, "-m", "cloze", "tag", str(folders[name]), text],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        check=False,
        timeout=120,
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"},
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert ran.returncode == 0
    assert "\x1b[2J" not in shown
    found = cloze.tag(cloze.load(folders[name]), text)
    for span in found.spans:
        assert f" {span.label} {span.score:.2f}" in shown
    assert "the cat" in shown


def test_answer(call, folders, tmp_path):
    model = cloze.load(folders["answer"])
    context = "the cats sat. a b c"
    found = cloze.answer(model, "the cat", context, top=3)
    lines = lines_of(call("answer", folders["answer"], "the cat", context, "--top", "3"))
    assert lines[0] == ["question", "answer", "probability", "start", "end"]
    assert lines[1:] == [
        ["the cat", c.text, f"{c.probability:.4f}", str(c.start), str(c.end)]
        for c in found.candidates
    ]
    one = json.loads(
        call("answer", folders["answer"], "the cat", "-", "--json", stdin=context).stdout
    )
    assert one["answers"] == [asdict(found.candidates[0])]
    lines = lines_of(call("answer", folders["answer"], "the cat", "", "--none"))
    assert lines[1][1] == "(the context does not tell)"
    paragraph = {
        "context": context,
        "qas": [
            {"id": str(n), "question": question, "answers": [{"text": "a", "answer_start": 14}]}
            for n, question in enumerate(("the cat", "a b"))
        ],
    }
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    ran = call("answer", folders["answer"], "--file", file, "--json", "--top", "2")
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["question"] for row in rows] == ["the cat", "a b"]
    assert [len(row["answers"]) for row in rows] == [2, 2]
    assert rows[0] | {"answers": rows[0]["answers"][:1]} == one
    del paragraph["qas"][0]["question"]
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    assert call("answer", folders["answer"], "--file", file).returncode == 1
    ran = call("answer", folders["answer"], "--file", file, "--skip-bad")
    assert [line[0] for line in lines_of(ran)] == ["question", "a b"]
    assert "passed over 1 that could not be read" in ran.stderr


def test_choose(call, folders):
    model = cloze.load(folders["choose"])
    options = ["cats", "sat", "a b"]
    found = cloze.choose(model, "the cat", options, question="c")
    flags = ["the cat", *options, "--question", "c"]
    lines = lines_of(call("choose", folders["choose"], *flags))
    assert lines[0] == ["", "option", "probability"]
    assert lines[1] == [str(found.option + 1), found.text, f"{found.score:.4f}"]
    assert len(lines) == 4
    row = json.loads(call("choose", folders["choose"], *flags, "--json").stdout)
    choices = row["choices"]
    best = {"option": found.option, "text": found.text, "score": pytest.approx(found.score)}
    assert choices[0] == best
    assert [one["score"] for one in choices] == pytest.approx(sorted(found.scores, reverse=True))
    assert [options[one["option"]] for one in choices] == [one["text"] for one in choices]
    ran = call("choose", folders["choose"], LONG, "b", "c", "--json")
    assert ran.returncode == 1
    assert "example 1: the text has 44 pieces" in json.loads(ran.stdout)["error"]
    assert "error: example 1: the text has 44 pieces" in ran.stderr


def test_choose_from_a_file(call, folders, tmp_path):
    rows = [{"text": "the cat", "options": ["cats", "sat"], "question": "c", "label": 1}]
    rows += [{"text": LONG, "options": ["a", "b"]}, {"text": "a"}]
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    ran = call("choose", folders["choose"], "-f", file)
    assert ran.returncode == 1
    found = cloze.choose(cloze.load(folders["choose"]), "the cat", ["cats", "sat"], question="c")
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert lines[0] == ["text", "", "option", "probability"]
    assert lines[1] == ["the cat | c", str(found.option + 1), found.text, f"{found.score:.4f}"]
    assert lines[2] == [LONG, "", "", ""]
    assert f"{file}:2: the text has 44 pieces" in ran.stderr
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["-f", file, "--json", "--skip-bad", "--policy", "tail"]
    ran = call("choose", folders["choose"], *flags)
    assert ran.returncode == 0
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["truncated"] for row in told] == [0, 40]
    assert told[0]["choices"][0]["option"] == found.option
    assert f"{file}:3: there are no options" in ran.stderr


@pytest.mark.parametrize(
    ("verb", "arguments", "code", "message"),
    [
        ("classify", ["tag", "a"], 1, "this model cannot classify: its head is token"),
        ("tag", ["classify", "a"], 1, "use it with `classify`"),
        ("tag", ["tag", "a", "--aggregation", "mean"], 1, "aggregation 'mean' is unknown"),
        ("answer", ["choose", "a", "b"], 1, "use it with `choose`"),
        ("answer", ["answer", "a"], 2, "give a question and a context"),
        ("answer", ["answer", "a", "b", "-f", "x.json"], 2, "give a question and a context"),
        ("choose", ["answer", "a", "b", "c"], 1, "use it with `answer`"),
        ("choose", ["choose", "a", "b"], 2, "there is only one to choose from"),
        ("choose", ["choose", "a"], 2, "give a text and its options"),
        ("choose", ["choose", "a", "b", "c", "-f", "x.json"], 2, "not both"),
        ("choose", ["choose", LONG, "b", "c", "--policy", "window"], 1, "not in windows"),
        ("classify", ["classify", "a", "--policy", "cut"], 1, "length policy 'cut' is unknown"),
        ("classify", ["classify", "a", "--pair-column", "b"], 2, "it is a column of a --file"),
        ("classify", ["classify", "a", "--pair", "b", "--pair-column", "c"], 2, "not both"),
    ],
)
def test_mistakes(call, folders, verb, arguments, code, message):
    folder, *rest = arguments
    ran = call(verb, folders[folder], *rest)
    assert ran.returncode == code
    assert message in " ".join(ran.stderr.replace("│", " ").split())


def test_info_names_the_verbs(call, folders):
    for verb in ("classify", "tag", "answer", "choose"):
        assert verb in json.loads(call("info", folders[verb], "--json").stdout)["verbs"]
