"""Views of older models: back-off paths, neighbors during training, gates, weights of layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.task import FeatureSettings, Task
from cloze.errors import InputError
from cloze.models.word2vec import Snapshots, normalize_vectors
from cloze.nn.feature_heads import FeatureInputs, LinearFeatureHead
from grams import text_model
from helpers import raises, tiny_model, word_model
from languages import elmo_model, neural_model
from translators import translator


def test_the_product_of_a_back_off_path_is_the_probability():
    model = text_model(order=3)
    text = "the cat sat on a mat"
    view = cloze.explain.backoff(model, text, top=4)
    scored = cloze.score(model, text)
    for one in [*view.data["words"], *view.data["next"]]:
        weights = [step["weight"] for step in one["path"]]
        assert one["probability"] == pytest.approx(np.prod(weights), rel=1e-12)
        lengths = [len(step["context"]) for step in one["path"]]
        assert lengths == sorted(lengths, reverse=True)
        assert one["order"] == lengths[-1] + 1 <= view.data["order"] == 3
    logs = [token.log_probability for token in scored.tokens][: len(view.data["words"])]
    found = [np.log(one["probability"]) for one in view.data["words"]]
    np.testing.assert_allclose(found, logs, rtol=1e-5)
    following = cloze.suggest(model, text, top=4).suggestions
    assert [one["word"] for one in view.data["next"]] == [one.word for one in following]
    assert "p(" in view.html()


WORDS = ["king", "queen", "man", "cabbage", "rare"]


def vectors_with_snapshots(count=4):
    rng = np.random.default_rng(0)
    copies = rng.normal(size=(3, count, 6)).astype(np.float32)
    last = np.concatenate([copies[-1], rng.normal(size=(5 - count, 6)).astype(np.float32)])
    return word_model(
        words=WORDS,
        vectors=last,
        snapshots=Snapshots(words_read=(10, 20, 40), vectors=copies),
    )


def test_neighbors_during_training():
    model = vectors_with_snapshots()
    view = cloze.explain.neighbors(model, "king, cabbage nonsense", top=2)
    assert view.data["words_read"] == [10, 20, 40]
    assert [one["word"] for one in view.data["words"]] == ["king", "cabbage"]
    for number, copy in enumerate(model.module.snapshots.vectors):
        unit = normalize_vectors(copy)
        for one in view.data["words"]:
            row = WORDS.index(one["word"])
            cosines = {WORDS[n]: float(unit[n] @ unit[row]) for n in range(4) if n != row}
            best = sorted(cosines, key=lambda word: -cosines[word])[:2]
            found = one["snapshots"][number]
            assert [each["word"] for each in found] == best
            for each in found:
                assert each["cosine"] == pytest.approx(cosines[each["word"]], abs=1e-6)
    assert "Nearest words of “king”" in view.html()
    with raises(InputError, "rare", "4"):
        cloze.explain.neighbors(model, "rare")
    with raises(InputError, "kings", fix="king"):
        cloze.explain.neighbors(model, "kings")


def test_neighbors_without_snapshots_are_those_of_similar():
    model = vectors_with_snapshots()
    model = replace(model, module=replace(model.module, snapshots=None))
    view = cloze.explain.neighbors(model, ["king"], top=3)
    expected = [
        {"word": one.word, "cosine": one.score} for one in cloze.similar(model, "king", top=3).words
    ]
    assert view.data["words"] == [{"word": "king", "snapshots": [expected]}]
    assert "run.snapshots" in view.note
    assert "<svg" in view.svg()


TEXT = "the cat sat on the mat"


def test_gates_give_the_hidden_states_of_an_lstm():
    model = neural_model("lstm")
    view = cloze.explain.gates(model, TEXT)
    assert [one["layer"] for one in view.data["layers"]] == ["1", "2"]
    for number, one in enumerate(view.data["layers"], 1):
        output = np.array(one["gates"]["output"])
        hidden = output * np.tanh(one["states"]["cell"])
        expected = cloze.embed(model, TEXT, pooling="none", layers=number).vectors
        np.testing.assert_allclose(hidden, expected, atol=1e-6)
        np.testing.assert_allclose(one["mean_gates"]["output"], output.mean(1))
        assert list(one["gates"]) == ["input", "forget", "output"]
    assert len(view.data["tokens"]) == len(expected)


def test_layers_and_units_of_an_elmo_are_selected():
    model = elmo_model()
    whole = cloze.explain.gates(model, TEXT, layers=2)
    assert [one["layer"] for one in whole.data["layers"]] == ["2.forward", "2.backward"]
    some = cloze.explain.gates(model, TEXT, layers="2.backward", units=3)
    (found,) = some.data["layers"]
    full = np.array(whole.data["layers"][1]["states"]["cell"])
    kept = sorted(np.argsort(-full.var(0), kind="stable")[:3].tolist())
    assert found["units"] == kept
    np.testing.assert_allclose(found["states"]["cell"], full[:, kept])
    assert len(found["gates"]["forget"]) == len(some.data["tokens"])


def test_other_cells_and_models():
    assert list(cloze.explain.gates(neural_model("gru"), TEXT).data["layers"][0]["gates"]) == [
        "reset",
        "update",
    ]
    view = cloze.explain.gates(translator("luong-general"), "ein Hund")
    assert all(
        len(one["gates"]["input"]) == len(view.data["tokens"]) for one in view.data["layers"]
    )
    with raises(InputError, "gates", fix="neurons"):
        cloze.explain.gates(neural_model("rnn"), TEXT)
    with raises(InputError, "gates", fix="attention"):
        cloze.explain.gates(tiny_model("mlm"), TEXT)
    with raises(InputError, "7", fix="1, 2"):
        cloze.explain.gates(neural_model("lstm"), TEXT, layers=7)


def test_the_learned_weights_of_layers():
    head = LinearFeatureHead(16, 2, inputs=FeatureInputs(mixed_layers=3))
    with torch.no_grad():
        head.mix.scores.copy_(torch.tensor([0.0, 1.0, 2.0]))
        head.mix.scale.fill_(1.5)
    spec = FeatureSettings(input_size=16, layers="scalar-mix", mixed_layers=3)
    model = replace(tiny_model(), feature_head=head, task=Task(name="classify", features=spec))
    view = cloze.explain.layer_weights(model)
    expected = torch.tensor([0.0, 1.0, 2.0]).softmax(0).tolist()
    assert view.data["input"]["weights"] == pytest.approx(expected, abs=1e-6)
    assert view.data["input"]["scale"] == 1.5
    assert "<svg" in view.svg()
    with raises(InputError, "layer_weights", fix="neurons"):
        cloze.explain.layer_weights(tiny_model())
