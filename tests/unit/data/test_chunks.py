"""Chunks of documents, and samples that begin with one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloze.data.chunks import plan_chunk_spans
from cloze.errors import InputError
from generated_examples import examples
from helpers import raises


@examples(30)
@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=12),
    st.integers(2, 9),
    st.integers(0, 40),
    st.integers(0, 2**16),
)
def test_spans_cover_every_document_once_and_begin_with_a_chunk(lengths, chunk, more, seed):
    ends = np.cumsum(lengths)
    documents = np.stack([ends - lengths, ends], 1)
    rng = np.random.default_rng(seed)
    spans = plan_chunk_spans(documents, chunk_length=chunk, max_tokens=chunk + more, rng=rng)
    assert (np.diff(spans)[:, 0] > 0).all()
    assert (np.diff(spans)[:, 0] <= chunk + more).all()
    assert [at for first, last in spans for at in range(first, last)] == list(range(ends[-1]))
    owner = np.searchsorted(ends, spans[:, 0], "right")
    assert ((spans[:, 0] - documents[owner, 0]) % chunk == 0).all()
    assert (spans[:, 1] <= documents[owner, 1]).all()


def test_other_epochs_have_other_spans():
    documents = np.array([[0, 1000]])
    made = {
        tuple(
            plan_chunk_spans(
                documents, chunk_length=8, max_tokens=64, rng=np.random.default_rng(seed)
            )[0]
        )
        for seed in range(20)
    }
    assert len(made) > 3


def test_a_sample_has_room_for_a_chunk():
    with raises(InputError, 10, 16, fix="--max-length 18"):
        plan_chunk_spans(
            np.array([[0, 50]]), chunk_length=16, max_tokens=10, rng=np.random.default_rng(0)
        )
