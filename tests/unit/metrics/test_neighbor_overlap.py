"""Overlap of neighbors with a text."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloze.metrics.neighbor_overlap import find_longest_match
from generated_examples import examples


def find_slowly(text, neighbor):
    return max(
        (
            size
            for first in range(len(text))
            for size in range(1, len(text) - first + 1)
            for at in range(len(neighbor) - size + 1)
            if text[first : first + size] == neighbor[at : at + size]
        ),
        default=0,
    )


tokens = st.lists(st.integers(0, 3), min_size=5, max_size=5)


@examples(30)
@given(st.lists(st.tuples(tokens, tokens, tokens), min_size=1, max_size=4))
def test_longest_run_of_tokens(rows):
    texts = np.array([row[0] for row in rows])
    neighbors = np.array([row[1:] for row in rows])
    found = find_longest_match(texts, neighbors)
    assert found.tolist() == [[find_slowly(text, one) for one in others] for text, *others in rows]
