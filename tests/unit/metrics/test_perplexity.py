"""Perplexity of any loss."""

import math

from hypothesis import given
from hypothesis import strategies as st

from cloze.metrics.perplexity import perplexity


@given(st.floats(max_value=709.0), st.floats(min_value=709.0))
def test_it_is_the_power_of_e_wherever_there_is_one(small, large):
    assert perplexity(small) == math.exp(small)
    assert perplexity(large) >= perplexity(small)


def test_beyond_all_numbers_it_is_infinite():
    assert math.isfinite(perplexity(709.0))
    assert perplexity(710.0) == perplexity(math.inf) == math.inf
    assert math.isnan(perplexity(math.nan))
