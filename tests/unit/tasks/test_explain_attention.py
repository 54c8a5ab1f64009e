"""`cloze.explain.attention`: models, words, pairs, selections, and one pair of tokens."""

import numpy as np
import pytest

import cloze
from cloze.errors import InputError
from helpers import raises, tiny_model
from languages import neural_model
from translators import TEXTS, translator

TEXT = "the cats sat."  # the cat ##s sat .


@pytest.fixture(scope="module")
def model():
    return tiny_model("mlm")


def test_weights_of_tokens_and_of_words(model):
    view = cloze.explain.attention(model, TEXT)
    (found,) = view.data["attention"]
    tokens = ["[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"]
    assert found["queries"]["tokens"] == found["keys"]["tokens"] == tokens
    words = [word[0] for word in found["keys"]["words"]]
    assert words == ["[CLS]", "the", "cats", "sat", ".", "[SEP]"]
    weights, by_word = np.array(found["weights"]), np.array(found["word_weights"])
    assert weights.shape == (2, 2, 7, 7)
    np.testing.assert_allclose(by_word[:, :, 1, 2], weights[:, :, 1, 2:4].sum(-1), atol=1e-6)
    np.testing.assert_allclose(by_word[:, :, 2, 1], weights[:, :, 2:4, 1].mean(-1), atol=1e-6)
    np.testing.assert_allclose(by_word.sum(-1), 1, atol=1e-5)


def test_texts_of_a_pair(model):
    (found,) = cloze.explain.attention(model, "the cat", "sat.").data["attention"]
    assert found["queries"]["sequences"] == [None, 0, 0, None, 1, 1, None]
    weights = np.array(found["weights"])
    between = found["between_texts"]
    assert list(between) == ["A → A", "A → B", "B → A", "B → B"]
    expected = weights[:, :, 1:3, 4:6].sum(-1).mean(-1)
    np.testing.assert_allclose(between["A → B"], expected, atol=1e-6)


def test_layers_heads_and_tokens_are_chosen(model):
    view = cloze.explain.attention(
        model, TEXT, layers=[2], heads=[1], layer=2, head=1, token="Cats"
    )
    (figure,) = view.figures
    assert (figure.layer, figure.head, figure.token) == (2, 1, 2)
    assert (figure.maps[0].layers, figure.maps[0].heads) == ((2,), (1,))
    with raises(InputError, "layer 1", fix="2"):
        cloze.explain.attention(model, TEXT, layers=[2], layer=1)
    with raises(InputError, "dog", fix="cat"):
        cloze.explain.attention(model, TEXT, token="dog")
    with raises(InputError, "token 7", fix="6"):
        cloze.explain.attention(model, TEXT, token=7)


def test_the_score_of_one_pair_of_tokens(model):
    view = cloze.explain.attention(model, TEXT, layer=1, head=2, token="the", key="sat")
    score = view.data["score"]
    assert (score["query"], score["key"]) == (1, 4)
    assert sum(score["products"]) == pytest.approx(score["score"], abs=1e-5)
    terms = np.array(score["query_vector"]) * score["key_vector"] / len(score["products"]) ** 0.5
    np.testing.assert_allclose(score["products"], terms, atol=1e-6)
    assert score["weight"] == view.data["attention"][0]["weights"][0][1][1][4]
    with raises(InputError, "layer", "head", "token", fix="layer=4"):
        cloze.explain.attention(model, TEXT, key="sat")


def test_a_translator_has_its_own_translation_or_the_one_given():
    model = translator("transformer")
    found = cloze.explain.attention(model, TEXTS[0], target_text="zwei Hund").data
    encoder, decoder, cross = found["attention"]
    assert [one["name"] for one in (encoder, decoder, cross)] == [
        "encoder",
        "decoder",
        "cross-attention",
    ]
    assert cross["keys"] == encoder["keys"]
    written, read = cross["queries"]["tokens"], decoder["queries"]["tokens"]
    assert read[1:] == written[:-1]  # the decoder reads a begin token, and writes an end
    assert np.array(cross["weights"]).shape[2:] == (len(written), len(encoder["keys"]["tokens"]))
    own = cloze.explain.attention(model, TEXTS[0]).data
    assert own["target_text"] == cloze.translate(model, TEXTS[0], beam=1).text


def test_a_recurrent_translator_has_an_alignment():
    view = cloze.explain.attention(translator("bahdanau"), TEXTS[0], target_text="zwei Hund")
    (found,) = view.data["attention"]
    assert found["name"] == "alignment"
    np.testing.assert_allclose(np.array(found["weights"]).sum(-1), 1, atol=1e-5)
    assert view.html()


def test_a_model_without_attention_is_an_error():
    with raises(InputError, "attention"):
        cloze.explain.attention(neural_model("lstm"), "the cat")


def test_what_a_page_contains(model, tmp_path):
    view = cloze.explain.attention(model, "<b>the</b> cat", token="cat")
    text = view.save(tmp_path / "a.html").read_text()
    assert "<b>the" not in text
    assert "clozeAttention" in text
    assert view.save(tmp_path / "a.svg").read_text().startswith("<svg")
