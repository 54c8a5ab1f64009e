"""The approximate indexes of LanceDB and pgvector: they are used, and find what is nearest."""

import numpy as np
import pytest

from stores import measure_recall


def make_clusters(count, size=16, seed=0):
    """Vectors of length 1 around 100 centers."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(100, size))[rng.integers(0, 100, count)]
    vectors += 0.5 * rng.normal(size=(count, size))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(("store", "count"), [("lancedb", 5_000), ("postgresql", 10_000)])
def test_indexes_are_used_and_find_the_nearest(store, count, tmp_path):
    vectors = make_clusters(count + 50)
    recall, _ = measure_recall(store, tmp_path / "index", vectors[50:], vectors[:50])
    assert recall >= 0.95
