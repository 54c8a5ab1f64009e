"""Properties of retrieval: exact search equals brute force."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cloze.retrieval.exact import search_exact

SMALL = st.integers(-3, 3).map(float)  # exact in float32, with many ties


@st.composite
def matrices(draw):
    size = draw(st.integers(1, 4))
    count, keys = draw(st.integers(1, 6)), draw(st.integers(1, 20))
    return (
        draw(arrays.arrays(np.float32, (count, size), elements=SMALL)),
        draw(arrays.arrays(np.float32, (keys, size), elements=SMALL)),
    )


@given(matrices(), st.integers(1, 25), st.integers(1, 7), st.integers(1, 7), st.data())
def test_exact_search_equals_brute_force(made, k, query_block, key_block, data):
    queries, keys = made
    groups = st.integers(0, 3)
    own = data.draw(st.lists(groups, min_size=len(queries), max_size=len(queries)))
    of_keys = data.draw(st.lists(groups, min_size=len(keys), max_size=len(keys)))
    allowed = data.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
    scores, indices = search_exact(
        queries,
        keys,
        k,
        exclude=(torch.tensor(own), torch.tensor(of_keys)),
        allowed=torch.tensor(allowed),
        query_block=query_block,
        key_block=key_block,
    )
    assert scores.shape == indices.shape == (len(queries), min(k, len(keys)))
    for row, query in enumerate(queries):
        all_scores = keys @ query
        may = [n for n in range(len(keys)) if allowed[n] and of_keys[n] != own[row]]
        best = sorted(may, key=lambda n: (-all_scores[n], n))[: len(indices[row])]
        missing = len(indices[row]) - len(best)
        assert indices[row].tolist() == best + [-1] * missing
        assert scores[row].tolist() == [all_scores[n] for n in best] + [-np.inf] * missing
