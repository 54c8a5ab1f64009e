import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from cloze.metrics.ranking import compute_ndcg, compute_recall, compute_reciprocal_rank


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=12),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_ndcg_equals_scikit_learn(gains, k, random):
    order = list(range(len(gains)))
    random.shuffle(order)
    scores = np.empty(len(gains))
    scores[order] = -np.arange(len(gains), dtype=float)
    relevance = dict(enumerate(gains))
    expected = ndcg_score([gains], [scores], k=k) if any(gains) else 0.0
    np.testing.assert_allclose(compute_ndcg(order, relevance, k), expected)


def test_recall_and_reciprocal_rank():
    relevance = {"a": 2, "b": 1, "c": 0}
    assert compute_recall(["c", "b", "x", "a"], relevance, 3) == 0.5
    assert compute_reciprocal_rank(["c", "b", "a"], relevance) == 0.5
    assert compute_reciprocal_rank(["c", "b", "a"], relevance, 1) == 0.0
    assert compute_recall(["a"], {}) == compute_reciprocal_rank([], relevance) == 0.0
    assert compute_ndcg(["a"], {"a": -1}) == 0.0
