"""Fine-tuning with several labels per text: loss, thresholds, metrics, the folder."""

import json

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import InputError
from cloze.make.finetune.labelled import read_labelled_data
from cloze.make.recipe.complete import complete_finetuning
from cloze.models.configs.bert import BertConfig
from cloze.objectives.labelled import binary_cross_entropy
from helpers import raises
from tunings import body, tune

METRICS = ["f1_micro", "f1_macro", "f1_samples", "subset_accuracy", "mean_average_precision"]


def rows(count, seed=0):
    """A text has the labels `has-a` and `has-b` if it contains these letters."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = rng.choice(list("cdefgh"), rng.integers(1, 6)).tolist()
        labels = [f"has-{letter}" for letter in "ab" if rng.random() < 0.4]
        for label in labels:
            words.insert(int(rng.integers(len(words) + 1)), label[-1])
        found.append({"text": " ".join(words), "labels": labels})
    return found


@pytest.fixture(scope="module", params=["full", "features"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    settings = [f"transfer.kind={request.param}"]
    result = tune(body(BertConfig), out, *settings, train=rows(240), dev=rows(60, seed=1))
    return request.param, out, result


def test_it_learns_and_stores_thresholds(run):
    kind, out, result = run
    assert list(result.scores) == [*METRICS, "majority_baseline"]
    assert result.metric == "f1_micro"
    assert result.score == result.scores["f1_micro"] > (0.9 if kind == "full" else 0.7)
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    thresholds = json.loads((out / "cloze.json").read_text())["thresholds"]
    assert set(thresholds) == {"has-a", "has-b"}
    assert all(0 <= one <= 1 for one in thresholds.values())


def test_the_folder_is_evaluated_as_in_training(run):
    _, out, result = run
    found = cloze.evaluate(out, rows(60, seed=1))
    assert found.kind == "multi_label"
    assert {**found.scores, **found.baseline} == pytest.approx(result.scores)
    assert found.confusion is None
    assert found.calibration is None
    written = found.to_dict()
    thresholds = cloze.load(out).task.thresholds
    assert {label: one["threshold"] for label, one in written["labels"].items()} == thresholds
    assert "threshold" in str(found.page().sections)
    joined = [{**row, "labels": ";".join(row["labels"])} for row in rows(60, seed=1)]
    assert cloze.evaluate(out, joined).scores == found.scores
    columns = [
        {"text": row["text"], **{name: int(name in row["labels"]) for name in thresholds}}
        for row in rows(60, seed=1)
    ]
    assert cloze.evaluate(out, columns, label_column=list(thresholds)).scores == found.scores


def test_labels_above_their_threshold_are_predicted(run):
    _, out, _ = run
    model = cloze.load(out)
    texts = ["a c d", "c b a", "d e f"]
    for found in cloze.classify(model, texts):
        above = [
            label for label, score in found.scores.items() if score >= model.task.thresholds[label]
        ]
        assert list(found.labels) == found.to_dict()["predicted"] == above
    compared = cloze.compare({"one": model, "other": model}, rows(20, seed=2), resamples=10)
    assert {"f1_micro", "mean_average_precision"} <= set(compared.entries[0].to_dict()["scores"])


def test_errors_are_ranked_by_the_number_of_wrong_labels(run, tmp_path):
    _, out, _ = run
    wrong = [{"text": "c d", "labels": ["has-a", "has-b"]}, {"text": "a c b", "labels": []}]
    found = cloze.evaluate(out, wrong, predictions=tmp_path / "p.jsonl")
    assert found.severity == "wrong labels"
    assert [one.severity for one in found.errors] == sorted(
        (one.severity for one in found.errors), reverse=True
    )
    first = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert first["gold"] == ["has-a", "has-b"]
    assert set(first["predicted"]["scores"]) == {"has-a", "has-b"}


def test_class_weights_balance_each_label():
    recipe = complete_finetuning(task="classify", options={"class_weights": "balanced"})
    train = [{"text": f"t{n}", "labels": ["a"] if n else ["a", "b"]} for n in range(4)]
    data = read_labelled_data(recipe, train, train)
    # of four texts all have a, and one has b
    assert torch.equal(data.class_weights(), torch.tensor([[2.0, 2 / 3], [0.5, 2.0]]))
    logits, targets = torch.tensor([[0.3, -1.0]]), torch.tensor([[1.0, 0.0]])
    weighted = binary_cross_entropy(logits, targets, data.class_weights())
    plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    assert torch.allclose(weighted, plain * torch.tensor([[0.5, 2 / 3]]))
    smoothed = binary_cross_entropy(logits, targets, smoothing=0.2)
    want = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.tensor([[0.9, 0.1]]), reduction="none"
    )
    assert torch.allclose(smoothed, want)


def test_a_delimiter_may_be_a_part_of_a_class_name():
    train = [{"text": name, "label": name} for name in ("a", "b", "a, b")]
    for options, labels in (({}, ("a", "b")), ({"regression": False}, ("a", "a, b", "b"))):
        recipe = complete_finetuning(task="classify", options=options)
        data = read_labelled_data(recipe, train, train)
        assert data.labels == labels
        assert ("several" in data.describe()) == (not options)


def test_a_label_that_only_held_out_texts_have_is_a_label():
    recipe = complete_finetuning(task="classify")
    train = [{"text": f"t {n}", "labels": [f"l{n}", "all"]} for n in range(40)]
    data = read_labelled_data(recipe, train, ())
    assert data.held_out
    assert len(data.labels) == 41


def test_labels_and_models_must_fit(run, tmp_path):
    _, out, _ = run
    with raises(InputError, "<list>:1", "has-c"):
        cloze.evaluate(out, [{"text": "c", "labels": ["has-c"]}])
    single = tune(body(BertConfig), tmp_path / "single", "run.steps=1").folder
    with raises(InputError, "<list>:1", "a, b"):
        cloze.evaluate(single, [{"text": "c", "labels": ["a", "b"]}])
    path = out / "cloze.json"
    changed = json.loads(path.read_text())
    changed["thresholds"]["has-a"] = 2
    broken = tmp_path / "broken"
    cloze.load(out).save(broken)
    (broken / "cloze.json").write_text(json.dumps(changed))
    with raises(cloze.ClozeError, "cloze.json", "thresholds.has-a", "2"):
        cloze.load(broken)
