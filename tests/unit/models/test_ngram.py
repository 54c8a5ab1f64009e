"""n-gram models: lookup, back-off, scoring in chunks."""

import numpy as np
import pytest

from cloze.decode.language import language_model
from cloze.errors import ConfigError
from cloze.models import ngram
from cloze.models.configs.ngram import BOS, EOS, NGramConfig
from cloze.models.ngram import Level, NGram, find_ranks
from grams import text_model
from helpers import raises

LN = np.log


@pytest.fixture
def model():
    """Four words a=3 b=4 over the symbols; bits = 3. Seen: a→b 0.6, <s> a→b 0.9."""
    config = NGramConfig(order=3, vocab_size=5)
    return NGram(
        config,
        [
            Level(
                keys=np.arange(5),
                log_p=LN([0.1, 1e-30, 0.2, 0.3, 0.4]),
                backoff=LN([1, 0.5, 1, 0.25, 1]),
            ),
            Level(
                keys=np.array([BOS << 3 | 3, 3 << 3 | 4]),
                log_p=LN([0.7, 0.6]),
                backoff=LN([0.8, 1]),
            ),
            Level(keys=np.array([0 << 3 | 4]), log_p=LN([0.9]), backoff=np.zeros(0)),
        ],
    )


def p(model, context, word):
    return np.exp(model.next_log_probs(context)[word])


def test_the_longest_known_ngram_gives_the_probability(model):
    assert p(model, [BOS, 3], 4) == pytest.approx(0.9)
    assert p(model, [4, 3], 4) == pytest.approx(0.6)
    assert p(model, [4], 4) == pytest.approx(0.4)
    assert p(model, [], 4) == pytest.approx(0.4)


def test_back_off_weights_of_known_contexts_are_multiplied(model):
    assert p(model, [BOS, 3], 2) == pytest.approx(0.8 * 0.25 * 0.2)
    assert p(model, [4, 3], 2) == pytest.approx(0.25 * 0.2)  # "b a" was never seen: weight 1


def test_the_back_off_path(model):
    steps = model.backoff_path([BOS, 3], 2)
    assert [step.context for step in steps] == [(BOS, 3), (3,), ()]
    assert [np.exp(step.log_weight) for step in steps] == pytest.approx([0.8, 0.25, 0.2])
    assert [step.context for step in model.backoff_path([0, 4, 3], 4)] == [(3,)]


def test_words_beyond_the_order_do_not_matter(model):
    np.testing.assert_array_equal(
        model.next_log_probs([4, 4, 4, BOS, 3]), model.next_log_probs([BOS, 3])
    )


def test_a_text_scored_in_chunks(monkeypatch):
    model = language_model(text_model(5))
    flat = np.concatenate(
        [np.array(one) for one in model.encode_texts(["the cat sat on the mat and"] * 9)]
    )
    whole = model.module.log_probs(flat)
    monkeypatch.setattr(ngram, "_CHUNK", 5)
    np.testing.assert_array_equal(model.module.log_probs(flat), whole)


def test_contexts_end_at_the_start_of_a_sentence():
    model = text_model(5).module
    one = np.array([BOS, 4, 5, EOS])
    np.testing.assert_array_equal(
        model.log_probs(np.concatenate((one, one)))[4:], model.log_probs(one)
    )


def test_find_ranks():
    keys = np.array([2, 5, 9])
    assert find_ranks(keys, np.array([9, 0, 5, 10, 2, 3])).tolist() == [2, -1, 1, -1, 0, -1]
    assert find_ranks(keys[:0], np.array([1])).tolist() == [-1]


@pytest.mark.parametrize("order", [0, 6])
def test_orders(order):
    with raises(ConfigError, "order", order, fix=("1", "5")):
        NGramConfig(order=order, vocab_size=5)
