"""Examples on report pages: spans of tags, answers in their passage, options, tables of texts."""

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
from cloze.plot.page import Page
from cloze.tasks.evaluate_labelled import score_predictions
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.example_cards import RIGHT, build_sections, describe_outcome
from helpers import tiny_model

WORDS = ((0, 1), (2, 3), (4, 5))
EXAMPLES = {
    "classify": [
        TextExample(text=f"a {'b ' * n}<c>", label=("no", "yes")[n % 2], origin=Origin(line=n))
        for n in range(12)
    ],
    "multi_label": [
        TextExample(text=f"a {'b ' * n}<c>", label=labels, origin=Origin(line=n))
        for n, labels in enumerate([("no",), ("no", "yes"), ()] * 4)
    ],
    "tag": [
        TaggedExample(text="a b c", words=WORDS, tags=tags, origin=Origin(file="x/f", line=n))
        for n, tags in enumerate([("O", "B-X", "I-X"), ("B-X", "O", "O"), ("O", "O", "O")] * 4)
    ],
    "answer": [
        QuestionExample(question=f"a {n} <b>", context="c d e f g", answers=answers)
        for n, answers in enumerate([(Answer(text="d e", start=2),), ()] * 6)
    ],
    "choose": [
        ChoiceExample(text="a b", question="c", options=("d <e>", "f"), label=n % 2)
        for n in range(12)
    ],
}
HEADS = {
    "classify": ("sequence", ("no", "yes")),
    "multi_label": ("sequence", ("no", "yes")),
    "tag": ("token", ("O", "B-X", "I-X")),
    "answer": ("span", ("no", "yes")),
    "choose": ("choice", ("no",)),
}


def outcome(task):
    head, labels = HEADS[task]
    is_multi = task == "multi_label"
    problem = "multi_label_classification" if is_multi else None
    done = Task(name="classify" if is_multi else task)
    model = tiny_model(head, labels=labels, task=done, problem=problem)
    scored = score_predictions(model, EXAMPLES[task])
    matrix = Evaluation(result=scored, labels=labels).confusion
    counts = matrix and {"labels": list(matrix.labels), "counts": matrix.counts.tolist()}
    return scored, json.loads(json.dumps(describe_outcome(scored, counts)))


@pytest.mark.parametrize("task", EXAMPLES)
def test_the_page_is_built_from_json(task):
    scored, stored = outcome(task)
    assert len(stored["wrong"]) + len(stored["right"]) <= len(EXAMPLES[task])
    assert len(stored["right"]) <= RIGHT
    sections = {section.title: section for section in build_sections(stored)}
    assert ("Confusion matrix" in sections) == (task in ("classify", "tag"))
    assert ("Worst errors" in sections) == bool(stored["wrong"])
    html = Page(title="t", sections=list(sections.values())).html()
    assert "<b>" not in html
    assert "<c>" not in html
    assert f"{stored['num_errors']:,} errors in {len(scored.examples):,}" in html


def cards(kind, *wrong):
    """The cards of errors that were stored."""
    content = {"kind": kind, "count": 9, "num_errors": len(wrong), "wrong": wrong, "right": []}
    (section,) = build_sections(content)
    return [card.data for card in section.parts[0].parts]


def marks(part):
    return [(part["text"][one["start"] : one["end"]], one["label"]) for one in part["marks"]]


def test_tags_are_marked_on_both_sides():
    shown = {"text": "Ada in Rome", "gold": [[0, 3, "PER"], [7, 11, "LOC"]], "source": "f:1"}
    (card,) = cards("tag", shown | {"predicted": [[7, 11, "ORG"]], "severity": 3.0})
    assert marks(card["head"]) == [("Ada", "PER"), ("Rome", "LOC")]
    assert marks(card["parts"][0]) == [("Rome", "ORG")]


@pytest.mark.parametrize(
    ("gold", "predicted", "want"),
    [
        ([[4, 7]], [4, 7], [("dog", "gold and predicted")]),
        (
            [[0, 7]],
            [4, 13],
            [("The ", "gold"), ("dog", "gold and predicted"), (" slept", "predicted")],
        ),
        ([[0, 3], [4, 7]], [4, 7], [("dog", "gold and predicted")]),
        ([], [4, 7], [("dog", "predicted")]),
        ([[4, 7]], None, [("dog", "gold")]),
    ],
)
def test_answers_are_marked_in_their_passage(gold, predicted, want):
    shown = {"text": "The dog slept.", "question": "Who?", "gold": gold, "predicted": predicted}
    (card,) = cards("answer", shown | {"probability": 0.5, "source": "f:1", "severity": 0.5})
    assert marks(card["parts"][0]) == want
    assert card["head"]["text"] == "Who?"


def test_options_have_bars_and_the_right_one_is_marked():
    shown = {"text": "a", "question": None, "options": ["b", "c"], "gold": 1, "source": "f:1"}
    (card,) = cards("choose", shown | {"probabilities": [0.7, 0.3], "severity": 0.7})
    assert card["parts"][0]["rows"] == [["b", 0.7], ["c", 0.3]]
    assert card["parts"][0]["right"] == "c"
