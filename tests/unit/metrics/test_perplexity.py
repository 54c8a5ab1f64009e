"""Perplexity, bits per byte, and their counts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.decode.language import language_model
from cloze.errors import InputError
from cloze.metrics.perplexity import LanguageModelScores, perplexity, score_language_model
from grams import text_model
from helpers import raises


class Coin:
    """Predicts every token with probability one half."""

    vocabulary = ("?", "<s>", "</s>", "word")
    unk_id = 0

    def encode_texts(self, texts):
        return [[1, *(0 if word == "?" else 3 for word in text.split()), 2] for text in texts]

    def log_probs(self, sequences):
        return [np.full(len(one) - 1, math.log(0.5), dtype=np.float32) for one in sequences]


def test_what_is_counted():
    found = score_language_model(Coin(), ["é b", "", "  ", "? c d"])
    assert (found.texts, found.tokens, found.words, found.unknown) == (2, 7, 7, 1)
    assert found.bytes == len("é b\n? c d\n".encode())
    assert found.perplexity == pytest.approx(2)
    assert found.bits_per_byte == pytest.approx(7 / 11)


def test_lines_of_a_file_are_texts():
    texts = ["a b", "", "c"]
    assert score_language_model(Coin(), [text + "\n" for text in texts]) == score_language_model(
        Coin(), texts
    )


def test_words_and_tokens_are_counted_separately():
    found = LanguageModelScores(
        texts=1,
        tokens=10,
        words=5,
        bytes=20,
        characters=5,
        unknown=0,
        log_p=10 * math.log(0.5),
    )
    assert found.bits_per_character == pytest.approx(2)
    assert found.perplexity == pytest.approx(2)
    assert found.word_perplexity == pytest.approx(4)
    assert found.bits_per_byte == pytest.approx(0.5)


def test_training_text_has_a_lower_perplexity():
    model = language_model(text_model(3))
    seen = score_language_model(model, ["the cat sat on the mat"])
    other = score_language_model(model, ["mat the on sat cat the"])
    assert seen.perplexity < other.perplexity
    assert seen.bytes == other.bytes


def test_many_texts_have_the_sum_of_their_scores():
    model = language_model(text_model(3))
    lines = ["the cat sat", "a dog"] * 700  # more than one batch
    one, two = (score_language_model(model, [line]).log_p for line in lines[:2])
    assert score_language_model(model, lines).log_p == pytest.approx(700 * (one + two))


def test_impossible_text_has_infinite_perplexity():
    found = LanguageModelScores(
        texts=1, tokens=1, words=1, bytes=1, characters=1, unknown=0, log_p=-1e9
    )
    assert found.perplexity == math.inf


def test_no_text():
    with raises(InputError, "text", fix="empty"):
        score_language_model(Coin(), ["", " "])


@given(st.floats(max_value=709.0), st.floats(min_value=709.0))
def test_perplexity_is_exp_of_the_loss(small, large):
    assert perplexity(small) == math.exp(small)
    assert perplexity(large) >= perplexity(small)


def test_overflow_is_infinite():
    assert math.isfinite(perplexity(709.0))
    assert perplexity(710.0) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))
