"""`explain.embeddings` and `explain.occurrences`: vectors as cells and maps, senses of a word."""

import json

import numpy as np
import pytest

import cloze
from cloze.errors import ConfigError, InputError
from cloze.interpret.projection import measure_separation, principal_components
from cloze.models.word2vec import normalize_vectors
from helpers import raises, tiny_model, word_model
from languages import elmo_model, neural_model
from translators import translator

TEXT = "the cat sat, a cat sat."
SENTENCES = ["the cat sat.", "a cat a b", "c d cat", "Cat e f g.", "a dog"]
SENSES = ["x", "x", "y", "y", "y"]


def test_the_tokens_of_a_text_in_several_layers():
    model = tiny_model("mlm")
    view = cloze.explain.embeddings(model, TEXT, layers="0,-1")
    assert view.data["tokens"] == model.tokenizer.encode(TEXT).tokens[1:-1]
    assert [one["layer"] for one in view.data["layers"]] == [0, 2]
    for one in view.data["layers"]:
        found = cloze.embed(model, TEXT, pooling="none", layers=one["layer"]).vectors[1:-1]
        np.testing.assert_allclose(one["vectors"], found, rtol=1e-6)
        expected, explained = principal_components(normalize_vectors(found))
        np.testing.assert_allclose(one["map"], expected, atol=1e-6)
        assert one["explained"] == pytest.approx(explained, abs=1e-6)
    with_special = cloze.explain.embeddings(model, TEXT, special_tokens=True)
    assert with_special.data["tokens"][0] == "[CLS]"


def test_several_texts_have_similarities():
    model = tiny_model("mlm")
    view = cloze.explain.embeddings(model, SENTENCES, layers=1, pooling="cls")
    (found,) = view.data["layers"]
    vectors = cloze.embed(model, SENTENCES, layers=1, pooling="cls", normalize=True)
    np.testing.assert_allclose(found["cosines"], vectors @ vectors.T, atol=1e-6)
    assert view.data["texts"] == SENTENCES
    assert "cosine similarity" in view.html()


@pytest.mark.parametrize(
    "make",
    [
        lambda: neural_model("lstm"),
        elmo_model,
        lambda: translator("transformer"),
        lambda: translator("luong-general"),
        lambda: word_model(words=["the", "cat", "sat"], vectors=np.eye(3, dtype=np.float32)),
    ],
    ids=["lstm", "elmo", "transformer", "seq2seq", "word2vec"],
)
def test_other_models_with_vectors_of_tokens(make):
    model = make()
    view = cloze.explain.embeddings(model, "the cat sat", layers="all")
    counts = {len(one["vectors"]) for one in view.data["layers"]}
    assert counts == {len(view.data["tokens"])}
    for one in view.data["layers"]:
        whole = cloze.embed(model, "the cat sat", pooling="none", layers=one["layer"])
        kept = ~np.array(whole.encoding.special_tokens_mask)
        np.testing.assert_allclose(one["vectors"], whole.vectors[kept], rtol=1e-5, atol=1e-6)
    view = cloze.explain.occurrences(model, ["the cat sat", "a cat"], word="cat")
    assert len(view.data["occurrences"]) == 2


def test_a_word_in_many_sentences_by_sense():
    model = tiny_model("mlm")
    view = cloze.explain.occurrences(model, SENTENCES, word="cat", senses=SENSES)
    places = view.data["occurrences"]
    assert [one["text"][one["start"] : one["end"]] for one in places] == ["cat"] * 3 + ["Cat"]
    assert [one["sense"] for one in places] == ["x", "x", "y", "y"]
    assert [one["layer"] for one in view.data["layers"]] == [0, 1, 2]
    for one in view.data["layers"]:
        embedded = cloze.embed(model, SENTENCES[:4], pooling="none", layers=one["layer"])
        vectors = np.stack([e.vectors[e.encoding.tokens.index("cat")] for e in embedded])
        found = measure_separation(vectors, ["x", "x", "y", "y"])
        assert one["neighbor_accuracy"] == found.neighbor_accuracy
        assert one["silhouette"] == pytest.approx(found.silhouette, abs=1e-6)
        assert one["majority"] == 0.5
        expected, _ = principal_components(normalize_vectors(vectors))
        np.testing.assert_allclose(one["map"], expected, atol=1e-6)


def test_the_vector_of_a_word_of_several_tokens_is_their_mean():
    model = tiny_model("mlm")
    texts = ["the cats sat", "a cats b"]  # cat ##s
    view = cloze.explain.occurrences(model, texts, word="cats", layers=1)
    embedded = cloze.embed(model, texts, pooling="none", layers=1)
    vectors = np.stack([one.vectors[2:4].mean(0) for one in embedded])
    assert embedded[0].encoding.tokens[2:4] == ["cat", "##s"]
    expected, _ = principal_components(normalize_vectors(vectors))
    np.testing.assert_allclose(view.data["layers"][0]["map"], expected, atol=1e-6)


def test_one_map_of_all_layers():
    model = tiny_model("mlm")
    view = cloze.explain.occurrences(
        model, SENTENCES, word="cat", senses=SENSES, layers="1,2", color="layer"
    )
    embedded = cloze.embed(model, SENTENCES[:4], pooling="none", layers=[1, 2])
    both = np.stack([e.vectors[e.encoding.tokens.index("cat")] for e in embedded])
    stacked = normalize_vectors(np.concatenate([both[:, :16], both[:, 16:]]))
    expected, _ = principal_components(stacked)
    found = np.concatenate([one["map"] for one in view.data["layers"]])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_senses_from_a_column_of_a_file_and_words_inside_others(tmp_path):
    model = tiny_model("mlm")
    path = tmp_path / "cats.tsv"
    rows = [*zip(SENTENCES, SENSES, strict=True), ("the cats", "z")]
    path.write_text("text\tsense\n" + "".join(f"{text}\t{sense}\n" for text, sense in rows))
    view = cloze.explain.occurrences(model, path, word="cat", label_column="sense", layers="last")
    assert [one["sense"] for one in view.data["occurrences"]] == ["x", "x", "y", "y"]
    lines = tmp_path / "cats.txt"
    lines.write_text("\n".join(SENTENCES))
    view = cloze.explain.occurrences(model, lines, word="cat", limit=3)
    assert [one["sense"] for one in view.data["occurrences"]] == [None] * 3
    assert all(one["silhouette"] is None for one in view.data["layers"])
    json.dumps(view.to_dict(), allow_nan=False)


def test_a_word_of_a_script_without_spaces():
    model = tiny_model("mlm")
    view = cloze.explain.occurrences(model, ["猫a猫", "b猫"], word="猫", layers="last")
    assert [one["start"] for one in view.data["occurrences"]] == [0, 2, 1]


def test_mistakes_are_explained():
    model = tiny_model("mlm")
    with raises(InputError, "dog", "1"):
        cloze.explain.occurrences(model, SENTENCES, word="dog")
    with raises(InputError, "word"):
        cloze.explain.occurrences(model, SENTENCES, word=" ")
    with raises(InputError, "2", "senses"):
        cloze.explain.occurrences(model, SENTENCES, word="cat", senses=["x", "y"])
    with raises(ConfigError, "color", fix="layer"):
        cloze.explain.occurrences(model, SENTENCES, word="cat", color="red")
    with raises(InputError, "sum-all", fix="all"):
        cloze.explain.embeddings(model, TEXT, layers="sum-all")
    with raises(InputError, "text"):
        cloze.explain.embeddings(model, [])
