"""Properties of n-gram models, for any text."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.interop.arpa import read_arpa, write_arpa
from cloze.models.configs.ngram import BOS, EOS, SYMBOLS
from generated_examples import examples
from grams import Reference, made, total

SIZE = 9
words = st.sampled_from([0, *range(len(SYMBOLS), SIZE)])
texts = st.lists(st.lists(words, max_size=8), min_size=1, max_size=12)
orders = st.integers(1, 5)
memories = st.sampled_from([1 << 10, 1 << 20])


@given(texts, orders, memories, st.lists(words, max_size=6), st.booleans())
@examples(150)
def test_every_context_sums_to_one(sentences, order, memory, asked, begins):
    """Of the text and not: each context of the first sentence, and one drawn apart."""
    model = made(sentences, SIZE, order, memory)
    first = (BOS, *sentences[0])
    for context in (*(first[:n] for n in range(len(first) + 1)), (BOS,) * begins + tuple(asked)):
        assert total(model, context) == pytest.approx(1, abs=2e-6)


@given(texts, orders, st.lists(words, max_size=6), words)
@examples(150)
def test_probabilities_equal_the_definition(sentences, order, asked, word):
    model, reference = made(sentences, SIZE, order), Reference(sentences, SIZE, order)
    for context in (tuple(asked), (BOS, *asked), (BOS, *sentences[0])):
        found = model.next_log_probs(context)[word]
        assert np.exp(found) == pytest.approx(float(reference.p(word, context)), rel=5e-6)


@given(texts, orders, texts)
@examples(100)
def test_scores_of_a_batch_equal_single_scores(sentences, order, others):
    model = made(sentences, SIZE, order)
    flat = np.array([id_ for one in others for id_ in (BOS, *one, EOS)])
    scored = model.log_probs(flat)
    start = 0
    for at, word in enumerate(flat):
        if word == BOS:
            start = at
            assert scored[at] == 0
        else:
            context = flat[start:at].tolist()
            assert scored[at] == pytest.approx(model.next_log_probs(context)[word], abs=1e-5)
            path = model.backoff_path(context, int(word))
            assert scored[at] == pytest.approx(sum(s.log_weight for s in path), abs=1e-5)


@given(texts, orders)
@examples(60)
def test_an_arpa_file_preserves_every_bit(sentences, order):
    model = made(sentences, SIZE, order)
    spelled = [*SYMBOLS, *"abcdef"]
    names, read = read_arpa("".join(write_arpa(spelled, model)).splitlines(keepends=True), "x")
    assert names == spelled
    for one, other in zip(model.levels, read.levels, strict=True):
        np.testing.assert_array_equal(one.keys, other.keys)
        np.testing.assert_array_equal(one.log_p, other.log_p)
    for one, other in zip(model.levels[:-1], read.levels[:-1], strict=True):
        np.testing.assert_array_equal(one.backoff, other.backoff)
