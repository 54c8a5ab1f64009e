"""Predictions as files: as many rows as examples, in their order."""

import json

import pytest

from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import (
    Answer,
    ChoiceExample,
    Origin,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from cloze.errors import InputError
from cloze.tasks.evaluate import evaluate
from cloze.tasks.predictions import write_predictions
from helpers import raises, tiny_model

PAIRS = [
    TextExample(text=text, pair="b\tc", label=label, origin=Origin(file="f.tsv", line=line))
    for line, (text, label) in enumerate([("a\nb", "no"), ("", "yes"), ("cat 猫", "no")], 1)
]


def questions(ids=("x", "y")):
    return [
        QuestionExample(
            question=f"{name}?",
            context="the cat sat",
            answers=(Answer(text="cat", start=4),) if name == "x" else (),
            origin=Origin(file="q.json", line=line, id=name),
        )
        for line, name in enumerate(ids, 1)
    ]


def of_pairs():
    return evaluate(tiny_model("sequence", task=Task(name="classify")), PAIRS)


def of_questions(**changes):
    model = tiny_model("span", task=Task(name="answer", truncation="window", allow_no_answer=True))
    return evaluate(model, questions(**changes))


def test_json_lines_hold_everything(tmp_path):
    made = of_pairs()
    rows = _rows(write_predictions(made, tmp_path / "p.jsonl"))
    assert [row["text"] for row in rows] == [example.text for example in PAIRS]
    assert [(row["file"], row["line"]) for row in rows] == [("f.tsv", n) for n in (1, 2, 3)]
    assert [row["gold"] for row in rows] == ["no", "yes", "no"]
    assert rows[0]["pair"] == "b\tc"
    for row, one in zip(rows, made.predictions, strict=True):
        assert row["predicted"]["label"] == one.label
        assert row["predicted"]["scores"] == one.scores
        assert "id" not in row
    rows = _rows(write_predictions(of_questions(), tmp_path / "q.jsonl"))
    assert [(row["id"], row["question"], row["gold"]) for row in rows] == [
        ("x", "x?", ["cat"]),
        ("y", "y?", []),
    ]


def test_tables_have_a_line_to_an_example(tmp_path):
    made = of_pairs()
    lines = write_predictions(made, tmp_path / "p.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t") == ["file", "line", "gold", "predicted", "score", "text", "pair"]
    assert len(lines) == 4
    for line, example, one in zip(lines[1:], PAIRS, made.predictions, strict=True):
        file, number, gold, told, score, text, pair = line.split("\t")
        assert (file, int(number), gold) == ("f.tsv", example.origin.line, example.label)
        assert (told, float(score)) == (one.label, pytest.approx(one.score, abs=1e-5))
        assert (text, pair) == (" ".join(example.text.split()), "b c")
    choices = [ChoiceExample(text="a", question="b", options=("c", "d"), label=1)]
    model = tiny_model("choice", labels=("LABEL_0",), task=Task(name="choose"))
    made = evaluate(model, choices)
    lines = write_predictions(made, tmp_path / "c.tsv").read_text().splitlines()
    assert lines[1].split("\t")[2:4] == ["1", str(made.predictions[0].option)]
    lines = write_predictions(of_questions(), tmp_path / "q.tsv").read_text().splitlines()
    assert [line.split("\t")[2] for line in lines[1:]] == ["cat", ""]


def test_tags_go_word_by_word(tmp_path):
    model = tiny_model("token", labels=("O", "B-X", "I-X"), task=Task(name="tag"))
    examples = [
        TaggedExample(text="cat  the a", words=((0, 3), (3, 8)), tags=("B-X", "I-X")),
        TaggedExample(text="b", words=((0, 1),), tags=("O",)),
    ]
    made = evaluate(model, examples)
    lines = write_predictions(made, tmp_path / "p.tsv").read_text().splitlines()
    tags = [tag for one in made.predictions for tag in one.tags]
    assert lines == [
        f"cat\tB-X\t{tags[0]}",
        f"the\tI-X\t{tags[1]}",
        "",
        f"b\tO\t{tags[2]}",
        "",
    ]


def test_a_word_that_was_not_read_has_no_score(tmp_path):
    model = tiny_model(
        "token", labels=("O", "B-X", "I-X"), task=Task(name="tag", truncation="head")
    )
    count = 2 * model.max_length
    words = tuple((2 * n, 2 * n + 1) for n in range(count))
    example = TaggedExample(text="a " * count, words=words, tags=("O",) * count)
    made = evaluate(model, [example], truncation="head")
    (row,) = _rows(write_predictions(made, tmp_path / "p.jsonl"))
    read = model.max_length - 2  # special tokens
    assert None not in row["predicted"]["scores"][:read]
    assert row["predicted"]["scores"][read:] == [None] * (count - read)
    assert row["predicted"]["untagged"] == count - read
    assert row["predicted"]["truncated_chars"] == 2 * (count - read) - 1


def test_answers_by_id(tmp_path):
    made = of_questions()
    found = json.loads(write_predictions(made, tmp_path / "p.json").read_text())
    assert found == {"x": made.predictions[0].text, "y": made.predictions[1].text}
    with raises(InputError, "'x'"):
        write_predictions(of_questions(ids=("x", "x")), tmp_path / "q.json")
    with raises(InputError, "q.json:1"):
        write_predictions(of_questions(ids=(None,)), tmp_path / "q.json")
    with raises(InputError, "answers"):
        write_predictions(of_pairs(), tmp_path / "q.json")
    assert not (tmp_path / "q.json").exists()


def test_where_nothing_may_be_written(tmp_path):
    made = of_pairs()
    with raises(InputError, ".jsonl", ".tsv", ".json"):
        write_predictions(made, tmp_path / "p.csv")
    (tmp_path / "p.tsv").write_text("precious")
    with raises(InputError, "exists"):
        write_predictions(made, tmp_path / "p.tsv")
    assert (tmp_path / "p.tsv").read_text() == "precious"
    assert write_predictions(made, tmp_path / "p.tsv", force=True).read_text() != "precious"


def _rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
