"""`explain.neurons`: activations of a text, and the tokens of a corpus that excite a neuron."""

import numpy as np
import pytest
import torch

import cloze
from cloze.errors import InputError
from cloze.interpret.activations import capture_activations, list_neuron_layers
from cloze.interpret.neurons import cluster_neurons, factorize_activations
from cloze.tasks.explain.top_tokens import find_top_tokens
from helpers import raises, tiny_model
from languages import elmo_model, neural_model
from translators import translator

TEXT = "the cat sat, a cat sat."
CORPUS = ["the cat", "a b c d e f g h i j " * 3, "", "sat the cat.", "c b a", "the cat"]


def run(model, text):
    """The activations of a BERT at the tokens of a text, by a direct forward."""
    encoded = model.tokenizer.encode(text)
    values = []
    hooks = [
        block.ffn.down.register_forward_pre_hook(lambda _, args: values.append(args[0][0]))
        for block in model.module.blocks
    ]
    with torch.no_grad():
        model.module(torch.tensor([encoded.ids]))
    for hook in hooks:
        hook.remove()
    return encoded, [one.clamp(min=0).numpy() for one in values]  # t n


def test_the_groups_are_those_of_a_direct_forward():
    model = tiny_model("mlm")
    view = cloze.explain.neurons(model, TEXT, factors=3, clusters=2, shown=5, seed=1)
    encoded, values = run(model, TEXT)
    whole = np.concatenate(values, 1).T[:, 1:-1].astype(np.float64)  # without [CLS] and [SEP]
    assert view.data["tokens"] == encoded.tokens[1:-1]
    assert view.data["layers"] == [{"name": "1", "neurons": 32}, {"name": "2", "neurons": 32}]
    found = factorize_activations(whole, 3, seed=1)
    (shown,) = view.data["factorizations"]
    np.testing.assert_allclose([one["tokens"] for one in shown["factors"]], found.tokens, rtol=1e-6)
    assert shown["strongest"] == (found.tokens.argmax(0) + 1).tolist()
    best = int(found.neurons[:, 0].argmax())
    assert shown["factors"][0]["neurons"][0] == {
        "neuron": f"{best // 32 + 1}:{best % 32}",
        "weight": pytest.approx(found.neurons[best, 0], rel=1e-6),
    }
    assert view.data["clusters"]["sizes"] == list(cluster_neurons(whole, 2, seed=1).sizes)
    assert len(view.data["neurons"]) == 5
    for one in view.data["neurons"]:
        layer, number = map(int, one["neuron"].split(":"))
        expected = whole[32 * (layer - 1) + number]
        np.testing.assert_allclose(one["activations"], expected, rtol=1e-6)
    largest = max(value for one in view.data["neurons"] for value in one["activations"])
    assert largest == pytest.approx(whole.max(), rel=1e-6)


def test_layers_tokens_and_several_numbers_of_factors_are_chosen():
    model = tiny_model("mlm")
    view = cloze.explain.neurons(
        model, TEXT, layers="-1", factors="2-3", clusters=0, special_tokens=True, neuron="2:7"
    )
    encoded, values = run(model, TEXT)
    assert view.data["tokens"] == encoded.tokens
    assert [one["name"] for one in view.data["layers"]] == ["2"]
    assert [len(one["factors"]) for one in view.data["factorizations"]] == [2, 3]
    assert view.data["clusters"] is None
    assert view.data["neurons"][0]["neuron"] == "2:7"
    np.testing.assert_allclose(
        view.data["neurons"][0]["activations"], values[1][:, 7], rtol=1e-6, atol=1e-7
    )
    assert "factor 3" in view.html()


def test_the_top_tokens_of_a_corpus_equal_brute_force():
    model = tiny_model("mlm")  # 24 positions: the second text is read in windows
    layers = list_neuron_layers(model.module)
    wanted = [(layers[1], 7), (layers[0], 3)]
    found = find_top_tokens(model, CORPUS, wanted, top=6, context=2, batch_tokens=10)
    for (layer, number), tokens in zip(wanted, found, strict=True):
        ranked = []
        for row, text in enumerate(CORPUS, 1):
            windows = [text] if row != 2 else [text[:44], text[44:]]  # of 22 tokens
            for window in filter(None, windows):
                encoded, values = run(model, window)
                column = values[int(layer.name) - 1][:, number]
                ranked += [
                    (-column[n], row, encoded.tokens[n], encoded.tokens[n - 2 : n + 3])
                    for n in range(1, len(encoded) - 1)
                    if column[n] > 0
                ]
        ranked.sort(key=lambda one: one[0])  # stable: of equal ones the first
        assert len(tokens) == min(6, len(ranked)) >= 3
        for one, (value, row, token, context) in zip(tokens, ranked, strict=False):
            assert one.value == pytest.approx(-value, rel=1e-5)
            assert (one.token, one.row) == (token, row)
            assert one.tokens[one.index] == token
            if one.index == 2:
                assert list(one.tokens) == context
            assert one.values[one.index] == one.value
    again = find_top_tokens(model, iter(CORPUS), wanted, top=6, context=2)
    assert [[(t.token, t.row) for t in one] for one in again] == [
        [(t.token, t.row) for t in one] for one in found
    ]


def test_a_corpus_file_without_a_text(tmp_path):
    model = tiny_model("mlm")
    path = tmp_path / "corpus.txt"
    path.write_text("the cat sat\na b c\n")
    view = cloze.explain.neurons(model, corpus=path, neuron=["1:4", "2:7"], top=3)
    assert list(view.data) == ["top_tokens"]
    assert [one["neuron"] for one in view.data["top_tokens"]] == ["1:4", "2:7"]
    assert all(len(one["tokens"]) <= 3 for one in view.data["top_tokens"])
    assert "Neuron 2:7" in view.html()


@pytest.mark.parametrize("make", [lambda: neural_model("lstm"), elmo_model])
def test_units_of_recurrent_models_are_neurons(make, tmp_path):
    model = make()
    view = cloze.explain.neurons(model, "the cat sat on the mat", factors=2, clusters=2)
    embedded = cloze.embed(model, "the cat sat on the mat", pooling="none", layers=1)
    special = np.array(embedded.encoding.special_tokens_mask)
    expected = np.maximum(embedded.vectors[~special], 0)  # t d, both directions of an ELMo
    names = [one["name"] for one in view.data["layers"]]
    assert names[:2] == (["1", "2"] if len(names) == 2 else ["1.forward", "1.backward"])
    rows = {one["neuron"]: one["activations"] for one in view.data["neurons"]}
    size = view.data["layers"][0]["neurons"]
    first = {name: row for name, row in rows.items() if name.startswith("1")}
    assert first
    for name, row in first.items():
        column = int(name.split(":")[1]) + (size if "backward" in name else 0)
        np.testing.assert_allclose(row, expected[:, column], rtol=1e-4, atol=1e-6)
    path = tmp_path / "corpus.txt"
    path.write_text("the cat sat\non the mat\n")
    best = next(iter(first))
    found = cloze.explain.neurons(model, corpus=path, neuron=best).data["top_tokens"][0]["tokens"]
    assert found == sorted(found, key=lambda one: -one["value"])


def test_encoder_and_decoder_of_a_translator():
    model = translator("transformer")
    view = cloze.explain.neurons(model, "ein Hund", factors=2, clusters=0)
    assert {one["name"].split(".")[0] for one in view.data["layers"]} == {"encoder"}
    assert view.data["tokens"][-1] != "</s>"
    view = cloze.explain.neurons(
        model, "ein Hund", target_text="a dog", layers="decoder.1", factors=2, clusters=0
    )
    inputs = [model.config.bos_id, *model.tokenizer.encode(" a dog").ids]
    assert len(view.data["tokens"]) == len(inputs)
    with raises(InputError, "encoder", "decoder", fix="decoder.1"):
        cloze.explain.neurons(model, "ein Hund", layers="encoder.1,decoder.1")


def test_activations_of_a_decoder_layer_equal_a_direct_forward():
    model = translator("transformer")
    view = cloze.explain.neurons(
        model, "ein Hund", target_text="a dog", layers="decoder.1", factors=2, clusters=0, shown=3
    )
    encoded = cloze.tasks.explain.inputs.encode_input(model, "ein Hund", target_text="a dog")
    layer = next(one for one in list_neuron_layers(model.module) if one.name == "decoder.1")
    source = torch.tensor([encoded.ids])
    inputs = torch.tensor([[model.config.bos_id, *encoded.target.ids[:-1]]])
    with torch.no_grad(), capture_activations([layer]) as captured:
        model.module.eval()(source, torch.ones_like(source, dtype=torch.bool), inputs)
    for one in view.data["neurons"]:
        number = int(one["neuron"].split(":")[1])
        expected = captured["decoder.1"][0, :, number]
        np.testing.assert_allclose(one["activations"], expected, rtol=1e-6)


def test_mistakes_are_explained(tmp_path):
    model = tiny_model("mlm")
    with raises(InputError, "text", fix="corpus"):
        cloze.explain.neurons(model)
    with raises(InputError, "neuron", fix="--neuron"):
        cloze.explain.neurons(model, corpus=tmp_path)
    with raises(InputError, "20", "factors"):
        cloze.explain.neurons(model, TEXT, factors=20)
    with raises(InputError, "many", fix="2-8"):
        cloze.explain.neurons(model, TEXT, factors="many")
    with raises(InputError, "special"):
        cloze.explain.neurons(model, "   x"[:3] + "\u200b")
