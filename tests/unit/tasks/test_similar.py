import numpy as np
import pytest

import cloze
from cloze import analogy, combine, odd_one_out, plot_vectors, plot_words, similar
from cloze.errors import ConfigError, InputError
from cloze.interpret.projection import principal_components
from cloze.models.configs.word2vec import CharNGrams
from cloze.models.word2vec import WordVectors
from helpers import Mentions, raises, tiny_model

PLACES = {
    "man": (1, 0.1, 0),
    "woman": (-1, 0.1, 0),
    "king": (1, 2, 0),
    "queen": (-1, 2, 0),
    "cabbage": (0, 0, 3),
}


@pytest.fixture
def model():
    return WordVectors(words=list(PLACES), vectors=np.array(list(PLACES.values()), np.float32))


def names(found):
    return [near.word for near in found.words]


def test_neighbours_are_by_cosine_and_without_the_word(model):
    found = cloze.similar(model, "king", top=4)
    assert names(found) == ["queen", "man", "cabbage", "woman"]
    assert found.query == "king"
    unit = model.unit_vectors
    assert found.words[0].score == pytest.approx(float(unit[2] @ unit[3]), abs=1e-6)


def test_several_words_are_asked_at_once(model):
    found = similar(model, ["king", "man"], top=1)
    assert [each.query for each in found] == ["king", "man"]
    assert found[0] == similar(model, "king", top=1)


def test_there_are_no_more_words_than_there_are(model):
    assert len(similar(model, "king").words) == 4
    with raises(ConfigError, "top", "0"):
        similar(model, "king", top=0)


def test_of_equals_the_more_frequent_comes_first():
    table = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    model = WordVectors(words=list("abcd"), vectors=table)
    assert names(similar(model, "a", top=2)) == ["b", "c"]


@pytest.mark.parametrize("product", [False, True])
def test_king_less_man_and_woman_is_queen(model, product):
    assert names(analogy(model, "man", "king", "woman", top=1, product=product)) == ["queen"]
    found = combine(model, ["king", "woman"], ["man"], top=1, product=product)
    assert found.query == "king + woman − man"
    assert names(found) == ["queen"]
    assert analogy(model, "man", "king", "woman", top=1).query == "man : king = woman : ?"


def test_a_product_is_that_of_levy_and_goldberg(model):
    unit = model.unit_vectors.astype(float)
    shares = (1 + unit[[2, 1, 0]] @ unit[3]) / 2
    expected = shares[0] * shares[1] / (shares[2] + 0.001)
    found = analogy(model, "man", "king", "woman", top=1, product=True)
    assert found.words[0].score == pytest.approx(expected, rel=1e-4)
    both = combine(model, ["king", "woman"], top=1, product=True)
    assert both.words[0].score == pytest.approx(shares[0] * shares[1], rel=1e-4)


def test_the_odd_one_out(model):
    odd = odd_one_out(model, ["king", "cabbage", "queen", "man"])
    assert odd.word == "cabbage"
    assert odd.fits[0].word == "cabbage"
    with raises(InputError, "2", "words"):
        odd_one_out(model, ["king", "queen"])


def test_how_alike_two_words_are(model):
    assert cloze.cosine(model, "king", "king") == pytest.approx(1)
    assert cloze.cosine(model, "man", "cabbage") == 0
    between = cloze.cosine(model, "king", "queen")
    assert between == pytest.approx(3 / 5)
    assert between == cloze.cosine(model, "queen", "king")
    assert similar(model, "king", top=1).words[0].score == pytest.approx(between)
    with raises(InputError, "kin"):
        cloze.cosine(model, "king", "kin")


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("similar", ["king"]),
        ("combine", [["king"]]),
        ("cosine", ["king", "queen"]),
        ("odd_one_out", [["a", "b", "c"]]),
        ("plot_words", [["king"]]),
        ("plot_vectors", [["king"]]),
    ],
)
def test_an_encoder_has_no_word_vectors(function, arguments):
    with raises(InputError, "BERT", function, fix=("word2vec", "embed")):
        getattr(cloze, function)(tiny_model("mlm"), *arguments)


def test_unknown_words_and_none_are_told(model):
    with raises(InputError, "kin"):
        similar(model, "kin")
    with raises(InputError, "word"):
        combine(model, [])
    with raises(InputError, "word"):
        similar(model, [])


def test_of_several_an_unknown_word_is_reported_and_the_others_go_on(model, monkeypatch):
    errors = {}
    asked = ["king", "kin", "man", "king"]
    found = similar(model, asked, top=2, on_error=errors.__setitem__)
    assert [one.query for one in found] == asked
    assert list(errors) == [1]
    assert errors[1].problem == Mentions("'kin'")
    assert found[1].words == ()
    assert found[0] == found[3]
    monkeypatch.setattr("cloze.tasks.similar._MAX_SCORES", 2 * len(model))  # two at a time
    again = similar(model, asked, top=2, on_error=errors.__setitem__)
    assert [names(one) for one in again] == [names(one) for one in found]
    with raises(InputError, "kin"):
        similar(model, "kin", on_error=errors.__setitem__)


def test_an_unseen_word_has_neighbours_by_its_n_grams():
    grams = CharNGrams(buckets=97)
    table = np.random.default_rng(0).normal(size=(97, 8)).astype(np.float32)
    words = ["walking", "cabbage", "king"]
    vectors = np.stack([table[grams.hash_ngrams(word)].mean(0) for word in words])
    model = WordVectors(words=words, vectors=vectors, char_ngrams=grams, ngram_vectors=table)
    assert names(similar(model, "walkings", top=1)) == ["walking"]


def test_the_plane_holds_what_varies_most():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 6))
    places, share = principal_components(flat.astype(np.float32))
    assert share == pytest.approx(1)
    apart = lambda x: np.linalg.norm(x[:, None] - x[None], axis=-1)  # noqa: E731
    np.testing.assert_allclose(apart(places), apart(flat), atol=1e-5)
    again, _ = principal_components(flat.astype(np.float32))
    assert (again == places).all()


def test_one_word_alone_lies_in_the_middle():
    places, share = principal_components(np.ones((1, 4), np.float32))
    assert places.tolist() == [[0, 0]]
    assert share == 0


def test_a_picture_of_words_and_their_neighbours(model):
    found = similar(model, ["king", "man"], top=2)
    picture = plot_words(model, ["king", "man"], found)
    dots = {dot.name: dot for dot in picture.points}
    assert set(dots) == {"king", "man", "queen", "cabbage"} | set(names(found[1]))
    assert dots["king"].bold
    assert not dots["queen"].bold
    assert dots["queen"].color == dots["king"].color
    assert picture.data["points"][0]["name"] == "king"


def test_cells_are_in_deviations_of_what_is_shown(model):
    cells = plot_vectors(model, ["king", "queen"])
    deviation = np.sqrt(10 / 6)  # of 1, 2, 0, −1, 2, 0
    np.testing.assert_allclose(cells.data["values"][0], np.array([1, 2, 0]) / deviation)
    nothing = WordVectors(words=["a"], vectors=np.zeros((1, 2), np.float32))
    assert plot_vectors(nothing, ["a"]).data["values"] == [[0, 0]]
    with raises(InputError, "word"):
        plot_vectors(model, [])


@pytest.mark.parametrize("function", [plot_vectors, plot_words, odd_one_out])
def test_an_encoder_is_refused_by_the_name_of_the_function(function):
    with raises(InputError, f"`{function.__name__}`", fix="word2vec"):
        function("cloze-en", ["king", "queen", "man"])
