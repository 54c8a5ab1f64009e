"""`classify`, `tag`, `answer` and `choose` as a user runs them."""

import json
import os
import pty
from dataclasses import asdict

import pytest

import cloze
from cloze.cli.format import format_probability
from helpers import check_mentions, tiny_model

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
LONG = "a b c d e f g h i j " * 4
TEXTS = ["the cat sat .", "cats, abc", "猫"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models = {
        "classify": tiny_model("sequence", labels=("bad", "fair", "good")),
        "number": tiny_model("sequence", labels=("n",), problem="regression"),
        "tag": tiny_model("token", labels=LABELS),
        "places": tiny_model("token", labels=("B-geo-loc", "I-geo-loc")),
        "answer": tiny_model("span"),
        "choose": tiny_model("choice"),
    }
    return {name: model.save(place / name) for name, model in models.items()}


@pytest.mark.parametrize(
    ("verb", "arguments", "key"),
    [
        ("classify", ["the cat"], "labels"),
        ("tag", ["the cat"], "spans"),
        ("answer", ["the cat", "a b c", "--top", "2"], "answers"),
    ],
)
def test_in_a_process_of_its_own(forked, run, folders, verb, arguments, key):
    ran = forked(verb, folders[verb], *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    assert key in json.loads(ran.stdout)
    assert run(verb, folders[verb], *arguments, "--json").stdout == ran.stdout


def lines_of(ran):
    assert ran.returncode == 0, ran.stderr
    return [line.split("\t") for line in ran.stdout.splitlines()]


def test_classify(run, folders):
    found = cloze.classify(cloze.load(folders["classify"]), TEXTS)
    lines = lines_of(run("classify", folders["classify"], *TEXTS))
    assert lines[0] == ["text", "label", "probability"]
    assert lines[1:] == [
        [text, one.label, f"{one.score:.4f}"] for text, one in zip(TEXTS, found, strict=True)
    ]
    ran = run("classify", folders["classify"], "--top", "3", "--json", stdin="\n".join(TEXTS))
    for line, one in zip(ran.stdout.splitlines(), found, strict=True):
        row = json.loads(line)["labels"]
        assert [each["label"] for each in row] == list(one.scores)
        assert row[0]["score"] == pytest.approx(one.score)
    lines = lines_of(run("classify", folders["number"], "the cat"))
    value = cloze.classify(cloze.load(folders["number"]), "the cat").score
    assert lines == [["text", "number"], ["the cat", f"{value:.4f}"]]


def test_classify_pairs(run, folders, tmp_path):
    model = cloze.load(folders["classify"])
    found = cloze.classify(model, "the cat", "a b")
    lines = lines_of(run("classify", folders["classify"], "the cat", "--pair", "a b"))
    assert lines[1] == ["the cat | a b", found.label, f"{found.score:.4f}"]
    table = tmp_path / "pairs.tsv"
    table.write_text("sentence1\tsentence2\tlabel\nthe cat\ta b\tunheard\ncats\tsat\tof\n")
    flags = ["--file", table, "--text-column", "sentence1", "--pair-column", "sentence2"]
    lines = lines_of(run("classify", folders["classify"], *flags))
    assert [line[0] for line in lines[1:]] == ["the cat | a b", "cats | sat"]
    assert lines[1][1:] == [found.label, f"{found.score:.4f}"]
    table.write_text("the cat\t0\na b\t1\n")
    lines = lines_of(run("classify", folders["classify"], "-f", table, "--text-column", "1"))
    assert [line[0] for line in lines[1:]] == ["the cat", "a b"]
    lines = lines_of(
        run("classify", folders["classify"], "-f", table, "--text-column", "1", "--pair", "a b")
    )
    assert lines[1] == ["the cat | a b", found.label, f"{found.score:.4f}"]


def test_classify_reads_tables_and_json_lines_from_standard_input(run, folders):
    model, column = folders["classify"], ("--text-column", "sentence")
    table = "sentence,label\nthe cat,good\na b,bad\n"
    for flags in (("-f", "-"), ("-",), ()):
        lines = lines_of(run("classify", model, *flags, *column, stdin=table))
        assert [line[0] for line in lines[1:]] == ["the cat", "a b"]
    rows = '{"premise": "the cat", "hypothesis": "a b", "label": "good"}\n'
    lines = lines_of(run("classify", model, "-f", "-", stdin=rows))
    assert [line[0] for line in lines[1:]] == ["the cat | a b"]
    flags = ("--text-column", "hypothesis", "--pair-column", "premise")
    lines = lines_of(run("classify", model, *flags, stdin=rows))
    assert [line[0] for line in lines[1:]] == ["a b | the cat"]
    lines = lines_of(run("classify", model, stdin=table))  # plain lines stay plain lines
    assert [line[0] for line in lines[1:]] == ["sentence,label", "the cat,good", "a b,bad"]


def test_the_bad_ones_are_told_and_the_others_go_on(run, folders, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text(f"a\n{LONG}\nb\n")
    ran = run("classify", folders["classify"], "-f", file, "--truncation", "error")
    assert ran.returncode == 1
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert [line[0] for line in lines[1:]] == ["a", LONG, "b"]
    assert [bool(line[1]) for line in lines[1:]] == [True, False, True]
    check_mentions(ran.stderr, f"error: {file}:2: ", "42", "fix: ")
    ran = run("tag", folders["tag"], "-f", file, "--json", "--truncation", "error")
    assert ran.returncode == 1
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ["spans" in row for row in rows] == [True, False, True]
    check_mentions(rows[1]["error"], "42")
    for policy in ("head+tail", "window"):
        for verb in ("classify", "tag"):
            ran = run(verb, folders[verb], "-f", file, "--truncation", policy)
            assert ran.returncode == 0, ran.stderr


def test_what_was_cut_is_said(run, folders, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text(f"a\n{LONG}\n")
    for verb, name, count in (
        ("classify", "truncated_chars", 35),
        ("tag", "truncated_chars", 35),
        ("tag", "untagged", 18),
    ):
        for flags in ([], ["--truncation", "head"]):
            ran = run(verb, folders[verb], "-f", file, *flags, "--json")
            assert ran.returncode == 0
            assert [json.loads(line)[name] for line in ran.stdout.splitlines()] == [0, count]
            (line,) = ran.stderr.splitlines()
            check_mentions(line, "1 of 2 texts", "24", "35 characters were not read")
        ran = run(verb, folders[verb], "-f", file, "--truncation", "window", "--json")
        assert [json.loads(line)[name] for line in ran.stdout.splitlines()] == [0, 0]
        assert ran.stderr == ""
    ran = run("answer", folders["answer"], LONG, "a b c", "--json")
    # of 40 tokens 10 are half of the model's room
    assert json.loads(ran.stdout)["truncated_chars"] == 59
    check_mentions(ran.stderr, "1 of 1 questions")
    ran = run("choose", folders["choose"], LONG, "b", "c", "--truncation", "head")
    check_mentions(ran.stderr, "1 of 1 questions", "24")


@pytest.mark.parametrize("verb", ["classify", "tag"])
def test_bad_rows_can_be_passed_over(run, folders, tmp_path, verb):
    file = tmp_path / "t.txt"
    file.write_bytes(f"a\n{LONG}\nb\n".encode() + b"\xff\n")
    ran = run(verb, folders[verb], "-f", file, "--skip-bad", "--json", "--truncation", "error")
    assert ran.returncode == 0
    assert [json.loads(line)["text"] for line in ran.stdout.splitlines()] == ["a", "b"]
    check_mentions(ran.stderr.splitlines()[-1], "2")
    ran = run(verb, folders[verb], "-f", file, "--json")
    assert ran.returncode == 1
    check_mentions(ran.stderr, f"{file}:4: ", "UTF-8")


@pytest.mark.parametrize("verb", ["classify", "tag", "answer", "choose"])
def test_no_header_before_an_error(run, folders, verb, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for file in (tmp_path / "nowhere.jsonl", empty):
        ran = run(verb, folders[verb], "-f", file)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert str(file) in ran.stderr


def test_small_probabilities_are_told_apart():
    numbers = (1.0, 0.12345, 0.001, 0.00094, 3.21e-7, 0.0)
    shown = ["1.0000", "0.1235", "0.0010", "9.4e-04", "3.2e-07", "0.0000"]
    assert [format_probability(number) for number in numbers] == shown


def test_tag(run, folders):
    model = cloze.load(folders["tag"])
    for how in ("first", "none"):
        ran = run("tag", folders["tag"], *TEXTS, "--aggregation", how)
        lines = lines_of(ran)
        assert lines[0] == ["text", "start", "end", "label", "probability", "span"]
        found = cloze.tag(model, TEXTS, aggregation=how)
        assert lines[1:] == [
            [str(n), str(s.start), str(s.end), s.label, f"{s.score:.4f}", s.text]
            for n, one in enumerate(found, 1)
            for s in one.spans
        ]
        rows = run("tag", folders["tag"], *TEXTS, "--aggregation", how, "--json").stdout
        for line, one in zip(rows.splitlines(), found, strict=True):
            assert json.loads(line)["spans"] == [asdict(span) for span in one.spans]


@pytest.mark.parametrize("name", ["tag", "places"])
def test_tag_on_a_terminal(forked, folders, name):
    """The text itself, spans marked; nothing in it can steer the terminal."""
    text = "the cat\x1b[2J sat"
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm-256color", "COLUMNS": "200"}
    ran = forked("tag", folders[name], text, stdout=theirs, **settings)
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert ran.returncode == 0
    assert "\x1b[2J" not in shown
    found = cloze.tag(cloze.load(folders[name]), text)
    for span in found.spans:
        assert f" {span.label} {span.score:.2f}" in shown
    assert all(word in shown for word in ("the", "cat", "sat"))


def test_answer(run, folders, tmp_path):
    model = cloze.load(folders["answer"])
    context = "the cats sat. a b c"
    found = cloze.answer(model, "the cat", context, top=3)
    lines = lines_of(run("answer", folders["answer"], "the cat", context, "--top", "3"))
    assert lines[0] == ["question", "answer", "probability", "start", "end"]
    assert lines[1:] == [
        ["the cat", c.text, f"{c.probability:.4f}", str(c.start), str(c.end)]
        for c in found.candidates
    ]
    one = json.loads(
        run("answer", folders["answer"], "the cat", "-", "--json", stdin=context).stdout
    )
    assert one["answers"] == [asdict(found.candidates[0])]
    shown = run("answer", folders["answer"], "the cat", "a", "--no-answer", "--top", "20")
    assert any(line[1].startswith("(") for line in lines_of(shown)[1:])
    refused = run("answer", folders["answer"], "the cat", " ")
    assert refused.returncode == 1
    check_mentions(refused.stderr, "context", "empty")
    paragraph = {
        "context": context,
        "qas": [
            {"id": str(n), "question": question, "answers": [{"text": "a", "answer_start": 14}]}
            for n, question in enumerate(("the cat", "a b"))
        ],
    }
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    ran = run("answer", folders["answer"], "--file", file, "--json", "--top", "2")
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["question"] for row in rows] == ["the cat", "a b"]
    assert [len(row["answers"]) for row in rows] == [2, 2]
    assert rows[0] | {"answers": rows[0]["answers"][:1]} == one
    del paragraph["qas"][0]["question"]
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    assert run("answer", folders["answer"], "--file", file).returncode == 1
    ran = run("answer", folders["answer"], "--file", file, "--skip-bad")
    assert [line[0] for line in lines_of(ran)] == ["question", "a b"]
    check_mentions(ran.stderr.splitlines()[-1], "1")


def test_choose(run, folders):
    model = cloze.load(folders["choose"])
    options = ["cats", "sat", "a b"]
    found = cloze.choose(model, "the cat", options, question="c")
    flags = ["the cat", *options, "--question", "c"]
    lines = lines_of(run("choose", folders["choose"], *flags))
    assert lines[0] == ["", "option", "probability"]
    assert lines[1] == [str(found.option + 1), found.text, f"{found.score:.4f}"]
    assert len(lines) == 4
    row = json.loads(run("choose", folders["choose"], *flags, "--json").stdout)
    choices = row["choices"]
    best = {"option": found.option, "text": found.text, "score": pytest.approx(found.score)}
    assert choices[0] == best
    assert [one["score"] for one in choices] == pytest.approx(sorted(found.scores, reverse=True))
    assert [options[one["option"]] for one in choices] == [one["text"] for one in choices]
    ran = run("choose", folders["choose"], LONG, "b", "c", "--json", "--truncation", "error")
    assert ran.returncode == 1
    check_mentions(json.loads(ran.stdout)["error"], "example 1", "44")
    check_mentions(ran.stderr, "error: ", "example 1", "44")


def test_choose_from_a_file(run, folders, tmp_path):
    rows = [{"text": "the cat", "options": ["cats", "sat"], "question": "c", "label": 1}]
    rows += [{"text": LONG, "options": ["a", "b"]}, {"text": "a"}]
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    ran = run("choose", folders["choose"], "-f", file, "--truncation", "error")
    assert ran.returncode == 1
    found = cloze.choose(cloze.load(folders["choose"]), "the cat", ["cats", "sat"], question="c")
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    assert lines[0] == ["text", "", "option", "probability"]
    assert lines[1] == ["the cat | c", str(found.option + 1), found.text, f"{found.score:.4f}"]
    assert lines[2] == [LONG, "", "", ""]
    check_mentions(ran.stderr, f"{file}:2: ", "44")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["-f", file, "--json", "--skip-bad", "--truncation", "tail"]
    ran = run("choose", folders["choose"], *flags)
    assert ran.returncode == 0
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["truncated_chars"] for row in told] == [0, 39]
    assert told[0]["choices"][0]["option"] == found.option
    check_mentions(ran.stderr, f"{file}:3: ", "options")


@pytest.mark.parametrize(
    ("verb", "arguments", "code", "message"),
    [
        ("classify", ["tag", "a"], 1, ("classify", "token", "works with tag")),
        ("tag", ["classify", "a"], 1, ("tag", "sequence", "classify")),
        ("tag", ["tag", "a", "--aggregation", "mean"], 1, ("aggregation", "'mean'", "first")),
        ("answer", ["choose", "a", "b"], 1, ("answer", "choice", "choose")),
        ("answer", ["answer", "a"], 2, ("question", "context")),
        ("answer", ["answer", "a", "b", "-f", "x.json"], 2, ("question", "context")),
        ("choose", ["answer", "a", "b", "c"], 1, ("choose", "span", "answer")),
        ("choose", ["choose", "a", "b"], 2, "one"),
        ("choose", ["choose", "a"], 2, ("text", "options")),
        ("choose", ["choose", "a", "b", "c", "-f", "x.json"], 2, "--file"),
        (
            "choose",
            ["choose", LONG, "b", "c", "--truncation", "window"],
            1,
            ("window", "head+tail"),
        ),
        ("classify", ["classify", "a", "--truncation", "cut"], 1, ("'cut'", "head+tail")),
        ("classify", ["classify", "a", "--pair-column", "b"], 2, ("column", "--file")),
        (
            "classify",
            ["classify", "a", "--pair", "b", "--pair-column", "c"],
            2,
            ("--pair", "--pair-column"),
        ),
    ],
)
def test_mistakes(run, folders, verb, arguments, code, message):
    folder, *rest = arguments
    ran = run(verb, folders[folder], *rest)
    assert ran.returncode == code
    check_mentions(ran.stderr, message)


def test_info_names_the_verbs(run, folders):
    for verb in ("classify", "tag", "answer", "choose"):
        assert verb in json.loads(run("info", folders[verb], "--json").stdout)["capabilities"]
