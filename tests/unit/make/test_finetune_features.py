"""`finetune` by features: the model reads, and only a small reader learns."""

import json

import numpy as np
import pytest
import torch

import cloze
from cloze.cli.format import print_info
from cloze.data.labelled.examples import TextExample
from cloze.errors import ConfigError
from cloze.make.finetune.features import VectorBatch, make_vector_objective
from cloze.models.configs.bert import BertConfig
from cloze.nn.feature_heads import CNNFeatureHead, ScalarMix
from cloze.tasks.features import Features
from helpers import Watch, raises
from tunings import body, changed, questions, tagged, texts, tune


@pytest.fixture(scope="module")
def base():
    return body(BertConfig)


@pytest.mark.parametrize("layers", ["last", "concat-last-4", "sum-all", "0,-1", "scalar-mix"])
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

    def forward(self, vectors, _lengths, _words=None):
        return super().forward(vectors)


def test_a_reader_of_words_takes_weights_and_smoothing():
    reader = Plain(3, 3)
    vectors, targets = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), [0, 2, 1, 2]
    features = Features(vectors=[vectors])
    batch = VectorBatch(features=features, targets=[targets], sample_ids=np.arange(1))
    weights = torch.tensor([0.5, 1.0, 2.0])
    logs = reader(vectors, [4]).log_softmax(-1)
    right = -logs[range(4), targets]
    found = make_vector_objective(weights, 0.0)(reader, batch, None)["tag"]
    assert found.item() == pytest.approx((weights[targets] * right).sum().item())
    found = make_vector_objective(None, 0.3)(reader, batch, None)["tag"]
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
    watch = [Watch(log=said.append)]
    long = [TextExample(text="b " * 40, label="no"), *texts(20)]
    ended = tune(base, tmp_path / "m", "transfer.kind=features", train=long, callbacks=watch)
    assert ended.truncated == 1
    assert any("1 sequences" in line and "(head)" in line for line in said)
    assert json.loads((tmp_path / "m" / "data.json").read_text())["truncated"] == 1


# What a user can get wrong


def test_the_weights_of_layers_are_learned_saved_and_shown(base, tmp_path, capsys):
    """Layers get weights of their own, unless a penalty keeps them equal."""
    rng = np.random.default_rng(0)
    train = [
        TextExample(text=" ".join(rng.permutation(list("bcdefgh")[:5])) + " " + end, label=label)
        for _ in range(60)
        for end, label in (("a", "yes"), ("h", "no"))
    ]
    features = ("transfer.kind=features", "transfer.layers=scalar-mix", "transfer.pooling=mean")
    tune(base, tmp_path / "m", *features, "transfer.mix_penalty=0", train=train, dev=train)
    head = cloze.load(tmp_path / "m").feature_head
    weights = head.mix.scores.softmax(0)
    assert weights.std() > 0.01, "the layers are not equally useful"
    assert head.mix.scale == 1, "a regression has a scale of its own"
    found = cloze.info(tmp_path / "m").features
    assert found["layers"] == "scalar-mix"
    assert found["layer_weights"] == pytest.approx(weights.tolist(), abs=1e-6)
    assert cloze.info(cloze.load(tmp_path / "m")).features == found, "of a model in memory too"
    print_info(cloze.info(tmp_path / "m"))
    assert "linear on scalar-mix: weights of the layers 0 " in " ".join(
        capsys.readouterr().out.split()
    )
    tune(base, tmp_path / "n", *features, "transfer.mix_penalty=1e6", train=train, dev=train)
    even = cloze.load(tmp_path / "n").feature_head.mix.scores.softmax(0)
    assert even.tolist() == pytest.approx([1 / 3] * 3, abs=1e-4)
    with raises(ConfigError, "scalar-mix", fix="finetune"):
        cloze.embed(tmp_path / "m", "a b", layers="scalar-mix")


def test_the_mix_is_the_papers_sum():
    """γ·Σ softmax(s)ⱼ·hⱼ (Peters et al. 2018, eq. 1)."""
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, 1.0, -2.0]))
        mix.scale.fill_(2.5)
    layers = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))  # l n d
    weights = mix.scores.softmax(0)
    expected = 2.5 * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))
    torch.testing.assert_close(mix(layers.transpose(0, 1).flatten(1)), expected)


def test_words_by_mixed_layers(base, tmp_path):
    tune(
        base,
        tmp_path / "m",
        "transfer.kind=features",
        "transfer.layers=scalar-mix",
        task="tag",
        train=tagged(160),
        dev=tagged(40, 1),
    )
    model = cloze.load(tmp_path / "m")
    assert model.feature_head.mix.scale != 1, "γ is learned"
    assert model.feature_head.mix.scores.abs().min() > 0
    (span,) = cloze.tag(model, "c a b d").spans
    assert (span.label, span.start, span.end) == ("X", 2, 5)


def test_texts_by_a_cnn(base, tmp_path):
    """The label depends on the order of two letters, which their sum does not tell."""
    rng = np.random.default_rng(0)

    def ordered(count):
        found = []
        for _ in range(count):
            words = rng.permutation(list("cdefgh")).tolist()
            label, at = bool(rng.integers(2)), int(rng.integers(7))
            words[at:at] = ["a", "b"] if label else ["b", "a"]
            found.append(TextExample(text=" ".join(words), label="ab" if label else "ba"))
        return found

    settings = ("transfer.kind=features", "transfer.layers=embeddings", "run.epochs=8")
    kinds = {"linear": ("transfer.pooling=mean",), "cnn": ("transfer.classifier=cnn",)}
    train, dev = ordered(200), ordered(60)
    scores = {
        kind: tune(base, tmp_path / kind, *settings, *own, train=train, dev=dev).score
        for kind, own in kinds.items()
    }
    assert scores["linear"] < 0.75
    assert scores["cnn"] > 0.95
    model = cloze.load(tmp_path / "cnn")
    texts = [one.text for one in dev[:8]]
    alone = [cloze.classify(model, text).scores["ab"] for text in texts]
    together = [one.scores["ab"] for one in cloze.classify(model, texts)]
    assert alone == pytest.approx(together, abs=1e-5), "padding does not matter"


@pytest.mark.parametrize(("num_layers", "kernel_size"), [(1, 3), (3, 3), (2, 5)])
def test_the_receptive_field_of_a_cnn_grows_with_depth(num_layers, kernel_size):
    head = CNNFeatureHead(
        4, 2, hidden_size=4, num_layers=num_layers, kernel_size=kernel_size
    ).requires_grad_(False)
    for convolution in head.convolutions:
        convolution.weight.fill_(0.1)  # so that no path is blocked
    x = torch.ones(1, 31, 4, requires_grad=True)
    head.encode(x, [31])[0, 15].sum().backward()
    seen = x.grad[0].abs().sum(-1).nonzero().flatten()
    field = 1 + num_layers * (kernel_size - 1)
    assert len(seen) == head.receptive_field == field
    assert (seen[0], seen[-1]) == (15 - field // 2, 15 + field // 2)


@pytest.mark.parametrize(
    ("settings", "names", "fix"),
    [
        (["transfer.classifier=cnn"], "classifier", "--transfer features"),
        (["transfer.kernel_size=4"], "kernel_size", "5"),
        (
            ["transfer.kind=features", "transfer.classifier=cnn", "transfer.pooling=mean"],
            "pooling",
            "--pooling",
        ),
    ],
)
def test_settings_of_a_cnn_that_cannot_be(base, tmp_path, settings, names, fix):
    with raises(ConfigError, names, fix=fix):
        tune(base, tmp_path / "m", *settings)
