"""Kneser–Ney against its definition, and counting that does not depend on memory."""

import numpy as np
import pytest

from cloze.errors import ConfigError, InputError
from cloze.models.configs.ngram import BOS, EOS, SYMBOLS
from cloze.train.external_counting import ScratchFolder, count_keys
from cloze.train.ngram import FALLBACK, estimate_discounts, estimate_ngram
from grams import TEXT, Reference, made, text_model, total
from helpers import raises


@pytest.fixture(scope="module")
def sentences():
    return text_model(1).tokenizer.encode_ids(TEXT)


SIZE = len({word for line in TEXT for word in line.split()}) + len(SYMBOLS)


def contexts(sentences, order):
    """Every context of the text, and some that never were."""
    seen = {()}
    for sentence in sentences:
        padded = (BOS, *sentence)
        seen |= {
            padded[max(0, end - n) : end] for end in range(1, len(padded) + 1) for n in (1, 2, 3, 4)
        }
    unseen = {(3, 3), (0,), (BOS, 0), (5, 4, 3, 3), (BOS, 11, 11), (4, 0, 4)}
    return sorted({context[-max(order - 1, 1) :] for context in seen | unseen})


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_probabilities_are_those_of_exact_fractions(sentences, order):
    model, reference = made(sentences, SIZE, order), Reference(sentences, SIZE, order)
    for context in contexts(sentences, order):
        found = np.exp(model.next_log_probs(context))
        for word in range(SIZE):
            expected = 0 if word == BOS else float(reference.p(word, context))
            assert found[word] == pytest.approx(expected, rel=3e-6), (context, word)
        assert total(model, context) == pytest.approx(1, abs=1e-6)


def test_the_text_has_estimated_and_fallen_back_discounts(sentences):
    """So that the test above means both."""
    model, reference = made(sentences, SIZE, 5), Reference(sentences, SIZE, 5)
    assert 0 < len(model.config.fallback_discounts) < 5
    for order, used in enumerate(model.config.discounts, 1):
        assert used == pytest.approx([float(d) for d in reference.discounts[order]])
        assert (used == FALLBACK) == (order in model.config.fallback_discounts)


def test_discounts_by_hand():
    """y = 4/(4+2·2) = ½; 1−2·½·2/4, 2−3·½·1/2, 3−4·½·1/1."""
    assert estimate_discounts([4, 2, 1, 1]) == (0.5, 1.25, 1.0)
    assert estimate_discounts([4, 2, 1, 0]) == (0.5, 1.25, 3.0)


@pytest.mark.parametrize(
    "degenerate", [[0, 2, 1, 1], [4, 0, 1, 1], [4, 2, 0, 1], [1, 1, 9, 1], [9, 9, 1, 90]]
)
def test_discounts_that_cannot_be_estimated(degenerate):
    assert estimate_discounts(degenerate) is None


@pytest.mark.parametrize("memory", [1 << 10, 1 << 12, 1 << 14])
def test_little_memory_gives_the_same_model(sentences, memory):
    """Chunks of 16 keys and more: many runs, merged, and every array in a file."""
    whole, pieces = made(sentences, SIZE, 5), made(sentences, SIZE, 5, memory=memory)
    assert isinstance(pieces.levels[-1].keys, np.memmap)
    for one, other in zip(whole.levels, pieces.levels, strict=True):
        np.testing.assert_array_equal(one.keys, other.keys)
        np.testing.assert_allclose(one.log_p, other.log_p, rtol=1e-6)
        np.testing.assert_allclose(one.backoff, other.backoff, rtol=1e-6, atol=1e-7)


def test_a_tally_is_a_count(tmp_path):
    rng = np.random.default_rng(0)
    chunks = [rng.integers(0, 50, size) for size in (40, 0, 1, 200, 30)]
    found = count_keys(chunks, ScratchFolder(tmp_path, 1 << 10))
    keys, counts = np.unique(np.concatenate(chunks), return_counts=True)
    np.testing.assert_array_equal(found.keys, keys)
    np.testing.assert_array_equal(found.counts, counts)


def test_a_tally_of_nothing(tmp_path):
    assert len(count_keys([], ScratchFolder(tmp_path, 1 << 10)).keys) == 0


def test_sentences_shorter_than_the_order(tmp_path):
    model = estimate_ngram([[3], [4], [3]], vocab_size=5, order=5, folder=tmp_path)
    assert [len(level.keys) for level in model.levels] == [5, 4, 2, 0, 0]
    assert total(model, (BOS, 3, 4, 3)) == pytest.approx(1, abs=1e-6)


def test_progress_is_told(tmp_path):
    told = []
    estimate_ngram(
        [[3, 4]], vocab_size=5, order=3, folder=tmp_path, progress=lambda *step: told.append(step)
    )
    assert told == [
        ("orders counted", 1, 3),
        ("orders counted", 2, 3),
        *(("orders estimated", n, 3) for n in (1, 2, 3)),
    ]


def test_no_text(tmp_path):
    with raises(InputError, "text", fix="empty"):
        estimate_ngram([], vocab_size=5, order=3, folder=tmp_path)


@pytest.mark.parametrize("order", [0, 6, 2.5])
def test_an_order_out_of_range(tmp_path, order):
    with raises(ConfigError, "order", order, fix=("1", "5")):
        estimate_ngram([[3]], vocab_size=5, order=order, folder=tmp_path)


@pytest.mark.parametrize("word", [5, -1])
def test_a_word_out_of_range(tmp_path, word):
    with raises(InputError, word, fix="5"):
        estimate_ngram([[3, word]], vocab_size=5, order=2, folder=tmp_path)


def test_an_end_is_predicted_and_a_beginning_never(sentences):
    model = made(sentences, SIZE, 3)
    logs = model.next_log_probs((BOS, 9))
    assert logs[BOS] == -np.inf
    assert logs[EOS] > -np.inf
