"""Maps and separation equal scikit-learn."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.neighbors import KNeighborsClassifier

from cloze.errors import ConfigError, InputError
from cloze.interpret.projection import compute_cosines, measure_separation, project_vectors
from helpers import raises

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(30, 8)) + np.repeat([[3.0], [0.0], [-2.0]], 10, axis=0) * RNG.normal(
    size=8
)
LABELS = [name for name in "abc" for _ in range(10)]


def test_principal_components_equal_scikit_learn_up_to_their_sign():
    found = project_vectors(VECTORS)
    model = PCA(2).fit(VECTORS)
    expected = model.transform(VECTORS)
    signs = np.sign((found.positions * expected).sum(0))
    np.testing.assert_allclose(found.positions, expected * signs, atol=1e-12)
    assert found.explained == pytest.approx(model.explained_variance_ratio_.sum(), abs=1e-12)


def test_separation_equals_scikit_learn():
    labels = [*LABELS[:-1], "d"]  # one label has a single vector
    found = measure_separation(VECTORS, labels)
    expected = silhouette_score(VECTORS, labels, metric="cosine")
    assert found.silhouette == pytest.approx(expected, abs=1e-12)
    hits = [
        KNeighborsClassifier(1, metric="cosine")
        .fit(np.delete(VECTORS, n, 0), np.delete(labels, n))
        .predict(VECTORS[n : n + 1])[0]
        == labels[n]
        for n in range(len(labels))
    ]
    assert found.neighbor_accuracy == np.mean(hits)
    assert found.majority == 10 / 30


def test_separation_of_one_label_and_of_all_different_labels():
    assert measure_separation(VECTORS, ["a"] * 30) is None
    found = measure_separation(VECTORS[:3], ["a", "b", "c"])
    assert (found.silhouette, found.neighbor_accuracy) == (None, 0.0)


def test_equal_vectors_separate_nothing():
    same = np.repeat(RNG.normal(size=(1, 8)), 5, axis=0)
    found = measure_separation(same, ["a", "a", "a", "b", "b"])
    # of the four others, two or one have the same label
    assert found.neighbor_accuracy == pytest.approx((3 * 2 / 4 + 2 * 1 / 4) / 5)
    assert found.silhouette == 0


def test_cosines_of_a_zero_vector_are_zero():
    found = compute_cosines(np.array([[1.0, 0.0], [0.0, 0.0], [2.0, 2.0]]))
    np.testing.assert_allclose(found, [[1, 0, 0.5**0.5], [0, 0, 0], [0.5**0.5, 0, 1]], atol=1e-12)


def test_unknown_maps_and_too_few_vectors_are_rejected():
    with raises(ConfigError, "map", "tsne", fix="pca"):
        project_vectors(VECTORS, "tsne")
    with raises(InputError, "UMAP", "3", fix="pca"):
        project_vectors(VECTORS[:3], "umap")


@pytest.mark.stress  # compiling UMAP takes half a minute
def test_umap_keeps_groups_together():
    far = np.concatenate([VECTORS[:10] + 40, VECTORS[10:20] - 40 * np.eye(8)[0]])
    found = project_vectors(far, "umap", seed=1)
    again = project_vectors(far, "umap", seed=1)
    assert np.array_equal(found.positions, again.positions)
    assert (
        measure_separation(found.positions - found.positions.mean(0), LABELS[:20]).neighbor_accuracy
        == 1
    )
