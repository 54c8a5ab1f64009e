"""Prediction files, scored by seqeval and scikit-learn, have the scores of `evaluate`."""

import json

import numpy as np
import pytest

from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import Origin, TaggedExample, TextExample
from cloze.tasks.evaluate import evaluate
from cloze.tasks.predictions import write_predictions
from helpers import tiny_model

pytestmark = pytest.mark.parity
WORDS = list("abcdefgh")


def test_tags_scored_by_seqeval(tmp_path):
    metrics = pytest.importorskip("seqeval.metrics")
    labels = ("O", "B-X", "I-X", "B-Y", "I-Y")
    rng = np.random.default_rng(0)
    examples = []
    for _ in range(30):
        words = rng.choice(WORDS, rng.integers(1, 9)).tolist()
        tags = tuple(rng.choice(labels, len(words)).tolist())
        places = tuple((2 * n, 2 * n + 1) for n in range(len(words)))
        examples.append(TaggedExample(text=" ".join(words), words=places, tags=tags))
    made = evaluate(tiny_model("token", labels=labels, task=Task(name="tag")), examples)
    text = write_predictions(made, tmp_path / "p.tsv").read_text()
    rows = [[line.split("\t") for line in part.split("\n")] for part in text.strip().split("\n\n")]
    gold, said = ([[row[side] for row in sentence] for sentence in rows] for side in (1, 2))
    assert made.score == pytest.approx(metrics.f1_score(gold, said))
    report = metrics.classification_report(gold, said, output_dict=True, zero_division=0)
    for label, rates in made.label_scores.items():
        assert rates.precision == pytest.approx(report[label]["precision"])
        assert rates.recall == pytest.approx(report[label]["recall"])
        assert rates.support == report[label]["support"]


def test_classes_scored_by_scikit_learn(tmp_path):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    labels = ("x", "y", "z")
    examples = [
        TextExample(
            text=" ".join(rng.choice(WORDS, rng.integers(1, 9))),
            label=str(rng.choice(labels)),
            origin=Origin(line=line),
        )
        for line in range(60)
    ]
    made = evaluate(tiny_model("sequence", labels=labels, task=Task(name="classify")), examples)
    lines = write_predictions(made, tmp_path / "p.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    gold, said = [row["gold"] for row in rows], [row["predicted"]["label"] for row in rows]
    assert gold == [example.label for example in examples]
    assert made.score == pytest.approx(metrics.accuracy_score(gold, said))
    assert made.confusion.counts.tolist() == metrics.confusion_matrix(gold, said).tolist()
    assert made.scores["f1_macro"] == pytest.approx(metrics.f1_score(gold, said, average="macro"))
