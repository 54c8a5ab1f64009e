"""Fréchet distance and memorization."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import InputError
from cloze.metrics.frechet import frechet_distance
from cloze.metrics.memorization import find_nearest, measure_memorization
from generated_examples import examples
from helpers import raises


def direct_distance(first, second):
    """As the formula has it, with a general root of the product of both covariances."""
    covariances = [np.atleast_2d(np.cov(one, rowvar=False)) for one in (first, second)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1])
    means = first.mean(0) - second.mean(0)
    return means @ means + np.trace(sum(covariances)) - 2 * np.trace(root).real


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(8, 40), st.floats(0.1, 10))
def test_the_distance_is_that_of_the_formula(seed, features, count, scale):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(count, features)) @ rng.normal(size=(features, features))
    second = scale * rng.normal(size=(count + 3, features)) + rng.normal(size=features)
    found = frechet_distance(first, second)
    assert found == pytest.approx(direct_distance(first, second), rel=1e-6, abs=1e-6)
    assert found == pytest.approx(frechet_distance(second, first), rel=1e-6, abs=1e-8)
    assert frechet_distance(first, rng.permutation(first)) == pytest.approx(0, abs=1e-8)
    shift = rng.normal(size=features)
    assert frechet_distance(first, first + shift) == pytest.approx(shift @ shift, abs=1e-6)
    turn = np.linalg.qr(rng.normal(size=(features, features)))[0]  # a rotation of both
    assert found == pytest.approx(frechet_distance(first @ turn, second @ turn), rel=1e-5, abs=1e-7)


def test_fewer_vectors_than_features_are_no_problem():
    rng = np.random.default_rng(0)
    assert 0 < frechet_distance(rng.normal(size=(5, 20)), rng.normal(size=(6, 20))) < np.inf
    with raises(InputError, "features", fix="encoder"):
        frechet_distance(np.zeros((3, 2)), np.zeros((3, 4)))
    with raises(InputError, "shape"):
        frechet_distance(np.zeros((1, 2)), np.zeros((3, 2)))
    with raises(InputError, "finite"):
        frechet_distance(np.full((3, 2), np.nan), np.zeros((3, 2)))


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 30))
def test_the_nearest_image_is_that_of_all_distances(seed, count, others):
    rng = np.random.default_rng(seed)
    vectors, references = rng.integers(0, 256, (2, max(count, others), 3, 3, 3))
    vectors, references = vectors[:count], references[:others]
    found = find_nearest(vectors, references)
    gaps = (vectors[:, None] - references[None]).reshape(count, others, -1)
    every = np.linalg.norm(gaps, axis=-1)
    assert np.allclose(found.distances, every.min(1), atol=1e-2)
    assert np.allclose(every[np.arange(count), found.indices], every.min(1), atol=1e-2)


def test_copies_are_found_and_new_images_are_not():
    rng = np.random.default_rng(0)
    training, held_out, fresh = rng.normal(size=(3, 200, 8))
    honest = measure_memorization(fresh, held_out, training)
    assert honest.ratio == pytest.approx(1, abs=0.15)
    assert honest.copies == pytest.approx(honest.held_out_copies, abs=0.05)
    half = np.concatenate([training[:100] + 1e-3, fresh[:100]])
    mixed = measure_memorization(half, held_out, training)
    assert mixed.copies == pytest.approx(0.5 + honest.copies / 2, abs=0.05)
    assert np.array_equal(mixed.nearest.indices[:100], np.arange(100))
    copied = measure_memorization(training, held_out, training)
    assert (copied.ratio, copied.copies) == (0, 1)
    assert "nearest" not in copied.to_dict()
    with raises(InputError, "no images"):
        measure_memorization([], held_out, training)
    with raises(InputError, "compared"):
        measure_memorization(fresh[:, :4], held_out, training)
