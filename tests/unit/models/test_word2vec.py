import numpy as np
import pytest

from cloze.errors import ConfigError, InputError
from cloze.models.configs.word2vec import CharNGrams
from cloze.models.word2vec import WordVectors, normalize_vectors
from helpers import raises

WORDS = ("king", "queen", "man", "woman")


def vectors(**changes) -> WordVectors:
    table = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
    return WordVectors(words=WORDS, vectors=table, **changes)


def test_words_are_found_as_written_or_in_lower_case():
    model = vectors(lowercase=True)
    assert (model["King"] == model.vectors[0]).all()
    assert "KING" in model
    assert "King" not in vectors()
    assert 7 not in model
    assert len(model) == 4
    assert list(model) == list(WORDS)
    assert model.hidden_size == 3


def test_of_duplicate_words_the_first_counts():
    model = WordVectors(words=["a", "b", "a"], vectors=np.eye(3, dtype=np.float32))
    assert model.find_row("a") == 0


def test_the_error_for_an_unknown_word_suggests_a_similar_one():
    with raises(InputError, "quen", "4", fix="queen"):
        vectors()["quen"]
    with raises(InputError, "xyz", fix=("character", "n-grams")):
        vectors()["xyz"]
    assert vectors().find_vector("xyz") is None


def test_an_unknown_word_has_the_mean_of_its_ngrams():
    grams = CharNGrams(buckets=11)
    table = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
    model = vectors(char_ngrams=grams, ngram_vectors=table, lowercase=True)
    rows = grams.hash_ngrams("kings")
    np.testing.assert_allclose(model["Kings"], table[rows].mean(0))
    assert "kings" not in model
    assert (model["king"] == model.vectors[0]).all()


def test_a_word_without_ngrams_is_unknown():
    grams = CharNGrams(min_n=6, max_n=6, buckets=2)
    model = vectors(char_ngrams=grams, ngram_vectors=np.zeros((2, 3), np.float32))
    with raises(InputError, "it"):
        model["it"]


def test_the_ngrams_of_where():
    # Bojanowski et al. 2017: <wh, whe, her, ere, re>
    grams = CharNGrams(min_n=3, max_n=3, buckets=1 << 31)
    assert len(grams.hash_ngrams("where")) == 5
    shared = set(grams.hash_ngrams("where")) & set(grams.hash_ngrams("her"))
    assert len(shared) == 1  # her, not <her>


@pytest.mark.parametrize("wrong", [{"min_n": 0}, {"max_n": 2}, {"buckets": 0}])
def test_invalid_ngram_ranges(wrong):
    with pytest.raises(ConfigError):
        CharNGrams(**wrong)


def test_unit_vectors_have_length_one_or_zero():
    unit = normalize_vectors(np.array([[3, 4], [0, 0]], np.float32))
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0]])
    assert vectors().unit_vectors.dtype == np.float32
