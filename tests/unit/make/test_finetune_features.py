"""`finetune` by features: the model reads, and only a small reader learns."""

import json

import numpy as np
import pytest
import torch

import cloze
from cloze.data.labelled.examples import TextExample
from cloze.make.finetune.features import VectorBatch, tagging_objective
from cloze.models.configs.bert import BertConfig
from cloze.train.fit import Callbacks
from tunings import body, changed, questions, tagged, texts, tune


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.mark.parametrize("layers", ["last", "concat-last-4", "sum-all", "0,-1"])
def test_texts_by_features(base, tmp_path, layers):
    ended = tune(
        base,
        tmp_path / "m",
        "transfer.kind=features",
        f'transfer.layers="{layers}"' if layers != "concat-last-4" else "transfer.layers=0,1,2",
        "transfer.pooling=mean",
        "transfer.l2_penalty=0.01",
    )
    assert ended.score > 0.9
    model = cloze.load(tmp_path / "m")
    assert not changed(base, tmp_path / "m")
    assert model.feature_head is not None
    assert [one.label for one in cloze.classify(model, ["b a c", "b c d"])] == ["yes", "no"]


def test_nothing_of_the_model_before_is_left(base, tmp_path):
    out = tmp_path / "m"
    tune(base, out, "transfer.kind=features")
    assert (out / "reader.safetensors").is_file()
    known = [one for one in questions(40) if one.answers]
    tune(base, out, "run.steps=1", task="answer", train=known, dev=known, force=True)
    model = cloze.load(out)
    assert (model.task.name, model.feature_head) == ("answer", None)
    assert not (out / "reader.safetensors").exists()


def test_words_by_features(base, tmp_path):
    ended = tune(
        base,
        tmp_path / "m",
        "transfer.kind=features",
        "transfer.layers=embeddings",
        task="tag",
        train=tagged(160),
        dev=tagged(40, 1),
    )
    assert ended.score > 0.9
    (span,) = cloze.tag(cloze.load(tmp_path / "m"), "c a b d").spans
    assert (span.label, span.start, span.end) == ("X", 2, 5)


@pytest.mark.parity
def test_the_regression_is_scikit_learns(base, tmp_path):
    from sklearn.linear_model import LogisticRegression

    train = texts(60)
    tune(base, tmp_path / "m", "transfer.kind=features", "transfer.l2_penalty=0.5", train=train)
    model = cloze.load(tmp_path / "m")
    vectors = cloze.embed(base, [one.text for one in train], pooling="cls")
    peer = LogisticRegression(C=1 / 0.5, tol=1e-8, max_iter=10_000)
    peer.fit(vectors, [one.label for one in train])
    theirs = peer.predict_proba(vectors)[:, 1]
    ours = [one.scores["yes"] for one in cloze.classify(model, [one.text for one in train])]
    assert ours == pytest.approx(theirs.tolist(), abs=1e-3)


def learned(base, out, *settings, train):
    """The vectors that a regression had, its probabilities, and its weights with the penalty."""
    tune(base, out, "transfer.kind=features", *settings, train=train, dev=train)
    model, said = cloze.load(out), [one.text for one in train]
    vectors = torch.from_numpy(cloze.embed(base, said, pooling="cls"))
    scores = [[one.scores[name] for name in model.labels] for one in cloze.classify(model, said)]
    return vectors, torch.tensor(scores), model.feature_head.dense.weight


def test_a_regression_takes_weights_and_smoothing(base, tmp_path):
    """At the least loss, Σ w_y·(softmax − target)ᵀ·x + penalty·W is zero."""
    train = [one for one in texts(120) if one.label == "no" or "b" in one.text]
    yes = torch.tensor([one.label == "yes" for one in train])
    assert 0 < yes.sum() < 0.4 * len(train)
    hard = torch.stack([~yes, yes], 1).float()
    share = len(train) / (2 * hard.sum(0))
    for name, settings, targets, each in (
        ("plain", [], hard, torch.ones(len(train))),
        ("smooth", ["loss.label_smoothing=0.2"], 0.8 * hard + 0.1, torch.ones(len(train))),
        ("weights", ["loss.class_weights=balanced"], hard, hard @ share),
    ):
        x, scores, matrix = learned(base, tmp_path / name, *settings, train=train)
        slope = ((scores - targets) * each[:, None]).T @ x + 2 * matrix  # two halves: twice
        assert slope.abs().max() < 0.02, name


class Plain(torch.nn.Linear):
    """A reader that reads every word alone."""

    def forward(self, vectors, _lengths):
        return super().forward(vectors)


def test_a_reader_of_words_takes_weights_and_smoothing():
    reader = Plain(3, 3)
    vectors, targets = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), [0, 2, 1, 2]
    batch = VectorBatch(vectors=[vectors], targets=[targets], sample_ids=np.arange(1))
    weights = torch.tensor([0.5, 1.0, 2.0])
    logs = reader(vectors, [4]).log_softmax(-1)
    right = -logs[range(4), targets]
    found = tagging_objective(weights, 0.0)(reader, batch, None)["tag"]
    assert found.item() == pytest.approx((weights[targets] * right).sum().item())
    found = tagging_objective(None, 0.3)(reader, batch, None)["tag"]
    assert found.item() == pytest.approx((0.7 * right - 0.3 * logs.mean(-1)).sum().item())


@pytest.mark.parametrize("setting", ["loss.class_weights=balanced", "loss.label_smoothing=0.3"])
def test_words_by_features_with_another_loss(base, tmp_path, setting):
    given = {"task": "tag", "train": tagged(40), "dev": tagged(9, 1)}
    fast = ("transfer.kind=features", "run.epochs=1.0")
    plain, other = (
        tune(base, tmp_path / name, *fast, *more, **given)
        for name, more in (("a", []), ("b", [setting]))
    )
    assert plain.steps == other.steps
    ours, theirs = (cloze.load(tmp_path / name).feature_head.state_dict() for name in "ab")
    assert not all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_features_say_what_was_cut(base, tmp_path):
    said = []
    watch = Callbacks(log=said.append)
    long = [TextExample(text="b " * 40, label="no"), *texts(20)]
    ended = tune(base, tmp_path / "m", "transfer.kind=features", train=long, callbacks=watch)
    assert ended.truncated == 1
    assert any("1 sequences" in line and "(head)" in line for line in said)
    assert json.loads((tmp_path / "m" / "data.json").read_text())["truncated"] == 1


# What a user can get wrong
