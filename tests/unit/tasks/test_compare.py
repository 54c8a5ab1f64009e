"""`compare`: same examples for all models, confidence intervals, differences to the first."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

import cloze
from cloze.checkpoint.load import load
from cloze.checkpoint.task import Task
from cloze.data.labelled.examples import Origin, TaggedExample, TextExample
from cloze.errors import InputError
from cloze.metrics.bootstrap import bootstrap_difference, bootstrap_interval
from cloze.tasks.compare import compare
from cloze.tasks.evaluate import evaluate
from helpers import raises, scramble, tiny_model

DRAWS = 200


def classifier(seed=0, **changes):
    model = tiny_model("sequence", **({"task": Task(name="classify")} | changes))
    scramble(model.module, seed=seed, scale=0.5)
    return model


@pytest.fixture(scope="module")
def examples():
    rng = np.random.default_rng(0)
    return [
        TextExample(
            text=" ".join(rng.choice(list("abcdefgh"), rng.integers(1, 9))),
            label=str(rng.choice(["no", "yes"])),
            origin=Origin(file="f.tsv", line=line),
        )
        for line in range(1, 61)
    ]


def test_one_row_to_a_model(examples):
    models = {"one": classifier(0), "two": classifier(3)}
    made = compare(models, examples, resamples=DRAWS, seed=5)
    assert [entry.name for entry in made.entries] == ["one", "two"]
    assert made.metric == "accuracy"
    assert made.count == 60
    for entry in made.entries:
        alone = evaluate(models[entry.name], examples)
        assert {name: one.value for name, one in entry.intervals.items()} == alone.scores
        assert entry.parameters == sum(p.numel() for p in models[entry.name].module.parameters())
        metric = alone.result.scorer.metric("matthews_correlation")
        expected = bootstrap_interval(metric, 60, rng=np.random.default_rng(5), resamples=DRAWS)
        assert entry.intervals["matthews_correlation"] == expected
    first, second = (entry.evaluation.result.scorer.metric() for entry in made.entries)
    rng = np.random.default_rng(5)
    assert made.entries[0].difference is None
    assert made.entries[1].difference == bootstrap_difference(
        second, first, 60, rng=rng, resamples=DRAWS
    )
    assert (
        compare(models, examples, resamples=DRAWS, seed=5).to_dict()["models"][1]["scores"]
        == (made.to_dict()["models"][1]["scores"])
    )


def test_a_model_is_not_better_than_itself(examples):
    model = classifier()
    made = compare({"it": model, "again": model}, examples, resamples=DRAWS)
    gap = made.entries[1].difference
    assert (gap.value, gap.low, gap.high, gap.p) == (0, 0, 0, 1)


def test_folders_and_files(tmp_path, examples):
    for name, seed in (("a", 0), ("b", 1)):
        classifier(seed).save(tmp_path / name)
    rows = "".join(f"{one.text}\t{one.label}\n" for one in examples)
    (tmp_path / "dev.tsv").write_text(f"text\tlabel\n{rows}broken\n")
    folders = [tmp_path / "a", tmp_path / "b"]
    with raises(InputError, "dev.tsv:62"):
        compare(folders, tmp_path / "dev.tsv", resamples=2)
    seen = []
    made = compare(
        folders,
        tmp_path / "dev.tsv",
        skip_bad=True,
        resamples=2,
        progress=lambda *row: seen.append(row),
    )
    assert [entry.name for entry in made.entries] == [str(folder) for folder in folders]
    assert len(made.skipped) == 1
    assert "1 rows skipped" in made.note
    assert (str(folders[1]), 60, 60) in seen


def test_loaded_models_are_named_by_their_folders(tmp_path, examples):
    folders = [classifier(seed).save(tmp_path / str(seed)) for seed in (0, 1)]
    for given in ([*map(load, folders)], iter(folders)):
        found = compare(given, examples, resamples=2)
        assert [entry.name for entry in found.entries] == [*map(str, folders)]
    with raises(InputError, "twice"):
        compare([load(folders[0]), folders[0]], examples, resamples=2)


def test_the_table_the_page_and_the_data(tmp_path, examples):
    models = {"<one>": classifier(0), "two": classifier(1)}
    made = compare(models, examples, resamples=DRAWS)
    rows = list(made.rows())
    assert made.columns[:3] == ("model", "parameters", "accuracy")
    assert made.columns[-3:] == ("difference to the first", "p-value", "time (s)")
    assert {len(row) for row in rows} == {len(made.columns)}
    assert rows[1][2] == str(made.entries[1].intervals["accuracy"])
    assert rows[0][-3:-1] == (None, None)
    assert rows[1][-3].startswith(f"{made.entries[1].difference.value:+.4f} [")
    page = made.save(tmp_path / "c.html", title="Both").read_text()
    assert "Both" in page
    assert "&lt;one&gt;" in page
    assert "f1_macro" in made.columns
    assert ">macro F1</th>" in page
    score = made.entries[0].intervals["accuracy"]
    assert f">{str(score).replace(' [', chr(10) + '[')}</td>" in page
    chart = made.page().data["sections"][0]["parts"][0]["parts"][0]
    assert chart["title"] == "accuracy"
    assert chart["rows"][0] == {"name": "<one>", **asdict(score)}
    assert "<iframe" in made._repr_html_()
    found = json.loads(json.dumps(made.to_dict()))
    assert [model["model"] for model in found["models"]] == ["<one>", "two"]
    assert found["models"][1]["difference"]["p"] == made.entries[1].difference.p


def test_measures_that_mean_another_thing_are_left_out(examples):
    turned = compare(
        {"a": classifier(), "b": classifier(labels=("yes", "no"))}, examples, resamples=2
    )
    assert "f1" not in turned.entries[0].intervals
    assert "matthews_correlation" in turned.entries[0].intervals
    more = compare(
        {"a": classifier(), "b": classifier(labels=("no", "yes", "else"))}, examples, resamples=2
    )
    assert set(more.entries[0].intervals) == {"accuracy", "f1_macro"}


def test_what_cannot_be_compared(examples):
    one = classifier()
    number = classifier(problem="regression", labels=("LABEL_0",))
    tagger = tiny_model("token", labels=("O", "B-X"), task=Task(name="tag"))
    words = tiny_model("token", labels=("NOUN", "VERB"), task=Task(name="tag"))
    for models, message in (
        ({"a": one, "b": tagger}, ("'a' is classify", "'b' is tag")),
        ({"a": one, "b": number}, ("classify", "number")),
        ({"a": tagger, "b": words}, ("tag", "words")),
        ({"a": one, "b": replace(one, task=None)}, ("model 'b':", "task", "classify")),
        ({"a": one, "b": classifier(labels=("no", "si"))}, "f.tsv"),
        ({}, ("model", "compare")),
    ):
        with raises(InputError, message):
            compare(models, examples, resamples=2)
    with raises(InputError, "model", "twice"):
        compare(["x", "x"], examples)


def test_tags():
    model = tiny_model("token", labels=("O", "B-X", "I-X"), task=Task(name="tag"))
    one = TaggedExample(text="a b", words=((0, 1), (2, 3)), tags=("B-X", "O"))
    made = cloze.compare({"m": model}, [one] * 5, resamples=3)
    assert made.metric == "f1"
    assert set(made.entries[0].intervals) == {"f1", "precision", "recall", "accuracy"}
