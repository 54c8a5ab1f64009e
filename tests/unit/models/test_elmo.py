"""ELMo against a plain reference, in float64."""

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.task import FeatureSettings
from cloze.data.labelled.batch import EncodedExample
from cloze.errors import ConfigError, InputError
from cloze.models.build import build
from cloze.models.configs.elmo import ElmoConfig
from cloze.nn.layout import Packed
from cloze.serve.functions import FUNCTIONS
from cloze.tasks.features import choose_pooling, extract_features
from cloze.text.word_characters import MAX_CHARACTERS, encode_rows
from elmo_reference import elmo, weights_of
from helpers import raises
from languages import ELMO_SHAPE, elmo_model

CLIPS = [
    {},
    {"cell_clip": 0.3},
    {"projection_clip": 0.2},
    {"cell_clip": 0.3, "projection_clip": 0.2},
]
TEXTS = (["the", "cat"], ["Zyzzyva", "ß", "x" * 99, "cat", "sat"], ["mat"], ["cat", "the"])


def in_double(**changes):
    return elmo_model(**changes).module.double()


def rows_of(words):
    return torch.from_numpy(encode_rows(words))


def reference(module, words):
    config = module.config
    clips = {
        "cell_clip": config.cell_clip or np.inf,
        "output_clip": config.projection_clip or np.inf,
    }
    return elmo(encode_rows(words), weights_of(module), **clips)


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("clips", CLIPS, ids=repr)
def test_packed_rows_of_different_lengths_equal_the_equations(clips):
    module = in_double(**clips)
    packed = Packed.from_lengths(map(len, TEXTS))
    layers = list(module.hidden_states(rows_of([w for text in TEXTS for w in text]), packed))
    assert len(layers) == module.num_layers + 1 == 3
    assert {layer.shape for layer in layers} == {(10, module.config.hidden_size)}
    expected = [reference(module, text) for text in TEXTS]
    for number, layer in enumerate(layers):
        close(layer, np.concatenate([one[number] for one in expected]))


def test_clipping_clips():
    plain, clipped = in_double(), in_double(cell_clip=0.3, projection_clip=0.2)
    rows = rows_of(TEXTS[1])
    packed = Packed.from_lengths([len(rows)])
    assert not torch.allclose(plain(rows, packed), clipped(rows, packed), atol=1e-3)
    bounded = list(clipped.hidden_states(rows, packed))[1]
    assert bounded.abs().max() <= 0.2 + 1e-12


@pytest.mark.parametrize("layers", [1, 3])
def test_any_number_of_layers(layers):
    module = in_double(num_layers=layers, num_highway_layers=0)
    found = list(module.hidden_states(rows_of(TEXTS[1]), Packed.from_lengths([5])))
    for one, expected in zip(found, reference(module, TEXTS[1]), strict=True):
        close(one, expected)


def test_padded_rows_equal_packed_ones():
    module = in_double()
    longest = max(map(len, TEXTS))
    padded = rows_of([word for text in TEXTS for word in [*text, *["x"] * (longest - len(text))]])
    mask = torch.tensor([[n < len(text) for n in range(longest)] for text in TEXTS])
    found = module(padded.view(len(TEXTS), longest, -1), mask)[mask]
    flat = rows_of([word for text in TEXTS for word in text])
    torch.testing.assert_close(found, module(flat, Packed.from_lengths(map(len, TEXTS))))


def test_neither_direction_reads_the_other():
    """One half of a vector depends on the words before it only, the other on those after it."""
    module, words = in_double(), ["the", "cat", "sat", "on", "mat"]
    size = module.config.projection_size
    changed = [*words[:2], "dog", *words[3:]]
    one, other = (module(rows_of(some), Packed.from_lengths([5])) for some in (words, changed))
    same = torch.isclose(one, other).all(-1)
    assert not same[2]
    assert torch.equal(one[:2, :size], other[:2, :size])
    assert torch.equal(one[3:, size:], other[3:, size:])
    assert not torch.isclose(one[3:, :size], other[3:, :size]).all()
    assert not torch.isclose(one[:2, size:], other[:2, size:]).all()


def test_words_outside_of_the_vocabulary_differ_by_their_characters():
    model = elmo_model()
    first, second, same = (
        cloze.embed(model, text, layers=0) for text in ("xyzzy", "plugh", "xyzzy")
    )
    assert not np.allclose(first, second)
    assert np.array_equal(first, same)


def test_columns_of_padding_are_left_out_without_a_change():
    module = in_double()
    rows = rows_of(["a", "cat", "x" * 20])
    trimmed = module.embeddings.trim(rows)
    assert trimmed.shape[1] == 22 + 3 < MAX_CHARACTERS
    torch.testing.assert_close(module.embeddings(trimmed), module.embeddings(rows))
    assert module.embeddings.trim(rows_of(["x" * 60])).shape[1] == MAX_CHARACTERS


def test_characters_as_a_product_of_matrices_are_their_embeddings():
    """On a GPU, while training."""
    cnn, rows = in_double().embeddings, rows_of(["a", "cat", "x" * 60])
    gradients = []
    for embed in (cnn.embed_one_hot, lambda some: cnn.embeddings(some.long())):
        found = embed(rows)
        (gradient,) = torch.autograd.grad(found.square().sum(), cnn.embeddings.weight)
        gradients.append(gradient)
        torch.testing.assert_close(found, cnn.embeddings.weight[rows.long()])
    torch.testing.assert_close(*gradients)


def test_carried_states_continue_a_text_inside_a_context_only():
    module = in_double(carry_state=True)
    rows, packed = rows_of(["the", "cat", "sat", "on"]), Packed.from_lengths([4])
    half, size = Packed.from_lengths([2]), module.config.projection_size
    whole = module(rows, packed)
    assert torch.equal(module(rows, packed), whole)
    with module.carry_states():
        parts = torch.cat([module(rows[:2], half), module(rows[2:], half)])
    torch.testing.assert_close(parts[:, :size], whole[:, :size])
    assert torch.equal(module(rows, packed), whole)
    stateless = in_double()
    with stateless.carry_states():
        assert torch.equal(stateless(rows, packed), stateless(rows, packed))


CONTINUED = ["the cat sat", "zzz", "on the mat the cat sat on", "a cat"]


def read_as_one(model, layer):
    """The forward half of the vectors of all texts, read as one."""
    rows = [row for text in CONTINUED for row in model.tokenizer.encode(text).ids]
    found = list(model.module.hidden_states(torch.tensor(rows), Packed.from_lengths([len(rows)])))
    return found[layer][:, : model.config.projection_size].detach().numpy()


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_embed_carries_the_states_from_text_to_text(layer):
    model = elmo_model(carry_state=True)
    size = model.config.projection_size
    alone = np.concatenate(
        [one.vectors for one in cloze.embed(elmo_model(), CONTINUED, pooling="none", layers=layer)]
    )
    for layers in (layer, {layer: 1.0}):
        found = cloze.embed(model, CONTINUED, pooling="none", layers=layers)
        vectors = np.concatenate([one.vectors for one in found])
        np.testing.assert_allclose(vectors[:, :size], read_as_one(model, layer), atol=1e-6)
        assert np.allclose(vectors[5:], alone[5:]) == (layer == 0)  # of all texts but the first
        np.testing.assert_allclose(vectors[:5], alone[:5], atol=1e-6)


def test_every_embedding_with_carried_states_begins_with_zeros():
    model = elmo_model(carry_state=True)
    expected = cloze.embed(model, CONTINUED)
    assert np.array_equal(cloze.embed(model, CONTINUED), expected)
    assert np.array_equal(cloze.embed(model, CONTINUED, batch_tokens=1), expected)
    np.testing.assert_allclose(
        cloze.embed(model, CONTINUED[0]), cloze.embed(elmo_model(), CONTINUED[0]), atol=1e-6
    )
    assert np.array_equal(
        cloze.embed(model, CONTINUED, layers=[1, 2])[:, model.config.hidden_size :], expected
    )
    with raises(InputError, "text 3"):
        cloze.embed(model, ["the", "cat", "x " * 5000], truncation="error")
    assert np.array_equal(cloze.embed(model, CONTINUED), expected)


def test_features_with_carried_states_are_those_of_embed():
    model = elmo_model(carry_state=True)
    encodings = [model.tokenizer.encode(text) for text in CONTINUED]
    items = [
        EncodedExample(
            ids=one.ids, type_ids=one.type_ids, positions=range(len(one.ids)), targets=()
        )
        for one in encodings
    ]
    settings = FeatureSettings(input_size=model.config.hidden_size)
    for _ in range(2):
        found = extract_features(model, items, settings, pooled=False, batch_tokens=2048)
        expected = cloze.embed(model, CONTINUED, pooling="none")
        for vectors, one in zip(found.vectors, expected, strict=True):
            np.testing.assert_allclose(vectors.numpy(), one.vectors, atol=1e-6)


def test_requests_to_a_server_do_not_carry_states_to_each_other():
    model = elmo_model(carry_state=True)
    inputs = [(text, None) for text in CONTINUED]
    found = FUNCTIONS["embed"].compute(model, inputs, {})
    for text, one in zip(CONTINUED, found, strict=True):
        assert np.array_equal(one.vectors, cloze.embed(model, text))


def test_embed_gives_three_vectors_per_word():
    model = elmo_model()
    (found,) = cloze.embed(model, ["the cat zzz"], pooling="none", layers=[0, 1, 2])
    rows = torch.tensor(found.encoding.ids)
    layers = list(model.module.hidden_states(rows, Packed.from_lengths([len(rows)])))
    expected = torch.cat(layers, -1).detach().numpy()
    np.testing.assert_allclose(found.vectors, expected, rtol=1e-5, atol=1e-6)
    assert found.vectors.shape == (5, 3 * model.config.hidden_size)


def test_a_text_is_the_mean_of_its_words_not_its_first_symbol():
    model = elmo_model()
    assert choose_pooling(model) == "mean"
    with raises(InputError, "cls", fix="mean"):
        cloze.embed(model, "the cat", pooling="cls")


def test_layers_are_mixed_with_given_weights():
    """γ·Σ s·h of Peters et al. 2018, eq. 1, with weights that a task has learned."""
    model, text = elmo_model(), "the cat zzz"
    layers = [cloze.embed(model, text, layers=n) for n in range(3)]
    expected = 0.5 * layers[0] - 2 * layers[2]
    for given in ({0: 0.5, 2: -2.0}, "0:0.5,2:-2", {0: 0.5, -1: -2}):
        found = cloze.embed(model, text, layers=given)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with raises(ConfigError, "layers", "0:1.2.3", fix="0:0.2,1:0.5,2:0.3"):
        cloze.embed(model, text, layers="0:1.2.3")
    for weight in ("a", None, np.nan, np.inf, 10**400):
        with raises(ConfigError, "layers", "weight", fix="0:0.2,1:0.5,2:0.3"):
            cloze.embed(model, text, layers={0: weight})
    with raises(ConfigError, "layers", "weight", fix="0:0.2,1:0.5,2:0.3"):
        cloze.embed(model, text, layers="0:1e999")
    with raises(InputError, "5", fix="2"):
        cloze.embed(model, text, layers={5: 1.0})


def test_gradients_reach_every_parameter():
    module = build(ElmoConfig(vocab_size=9, **ELMO_SHAPE), rng=torch.Generator().manual_seed(0))
    module(rows_of(TEXTS[1]), Packed.from_lengths([5])).square().sum().backward()
    without = [
        name
        for name, weight in module.named_parameters()
        if weight.grad is None and not name.startswith("output.")
    ]
    assert not without


def test_presets():
    original = ElmoConfig.preset("original", vocab_size=3, output="none")
    module = cloze.models.build.build_on_meta(original)
    count = sum(weight.numel() for weight in module.parameters())
    assert count == pytest.approx(93.6e6, rel=0.01)  # the size of the published model
    assert (original.hidden_size, original.num_layers) == (1024, 2)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"filter_widths": (1, 2)}, "filter_counts"),
        ({"filter_widths": (51,), "filter_counts": (3,)}, "filter_widths"),
        ({"projection_size": 8, "cell_size": 8}, "projection_size"),
        ({"output": "hierarchical"}, "output"),
    ],
)
def test_harmful_settings_are_refused(settings, name):
    with raises(ConfigError, name):
        ElmoConfig(**settings)
