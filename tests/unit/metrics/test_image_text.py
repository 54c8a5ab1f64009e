"""Recall of images and captions, against a slow computation and against random rankings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.metrics.image_text import compute_chance_recalls, compute_recalls
from generated_examples import examples


def count_hits(similarities, captions, k):
    """Both directions, query by query; wrong candidates come first where scores are equal."""
    images, texts = similarities.shape
    of_images = [
        captions[n]
        in sorted(range(texts), key=lambda c: (-similarities[n, c], c == captions[n]))[:k]
        for n in range(images)
    ]
    of_texts = []
    for c in range(texts):
        ranking = sorted(range(images), key=lambda n: (-similarities[n, c], captions[n] == c))
        of_texts.append(any(captions[n] == c for n in ranking[:k]))
    return np.mean(of_texts), np.mean(of_images)


@examples(60)
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_recalls_equal_counted_hits(texts, more, seed):
    rng = np.random.default_rng(seed)
    captions = np.concatenate([np.arange(texts), rng.integers(0, texts, more)])
    similarities = rng.integers(0, 4, (len(captions), texts)).astype(float)  # many are equal
    found = compute_recalls(similarities, captions, (1, 2, 5))
    for k in (1, 2, 5):
        both = count_hits(similarities, captions, k)
        assert found[f"text_to_image_recall_at_{k}"] == pytest.approx(both[0])
        assert found[f"image_to_text_recall_at_{k}"] == pytest.approx(both[1])
        assert found[f"recall_at_{k}"] == pytest.approx(np.mean(both))


def test_chance_is_the_mean_of_random_rankings():
    captions = np.array([0, 0, 0, 1, 2, 2, 3])
    rng = np.random.default_rng(0)
    drawn = [compute_recalls(rng.random((7, 4)), captions, (1, 3)) for _ in range(4000)]
    for name, expected in compute_chance_recalls(captions, (1, 3)).items():
        assert np.mean([one[name] for one in drawn]) == pytest.approx(expected, abs=0.02), name


def test_a_perfect_model_finds_everything():
    captions = np.array([0, 1, 1, 2])
    found = compute_recalls(np.eye(3)[captions], captions)
    assert set(found.values()) == {1.0}
    assert compute_chance_recalls(np.arange(1)) == dict.fromkeys(found, 1.0)
