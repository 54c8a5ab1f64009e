"""BM25 equals bm25s with the same terms and parameters."""

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.retrieval.bm25 import BM25, find_terms
from generated_examples import examples

pytestmark = pytest.mark.parity
WORDS = st.sampled_from(["red", "blue", "fox", "owl", "the", "a", "night"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=2, max_size=8)

QUERIES = st.lists(WORDS, min_size=1, max_size=4, unique=True)


@examples(30)
@given(
    TEXTS, st.lists(WORDS, min_size=1, max_size=4, unique=True), st.floats(0.1, 3), st.floats(0, 1)
)
def test_scores_equal_those_of_bm25s(texts, query, k1, b):
    peer = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64")
    peer.index([find_terms(text) for text in texts], show_progress=False)
    known = [term for term in query if any(term in text.split() for text in texts)]
    if not known:
        return
    # Lucene leaves out the constant factor k1 + 1
    expected = peer.get_scores(known) * (k1 + 1)
    np.testing.assert_allclose(BM25.from_texts(texts, k1=k1, b=b).score(query), expected, rtol=1e-9)
