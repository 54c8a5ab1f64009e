"""Properties of stores: a sequence of changes leaves what a dict would contain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.retrieval.bm25 import find_terms
from cloze.retrieval.filters import parse_filter
from cloze.retrieval.folder import DocumentIndex, create_index, update_index
from generated_examples import examples
from stores import (
    STORES,
    list_best,
    list_matching,
    make_manifest,
    make_vector,
    put,
    temporary_folder,
)

# what a text may contain that was checked by the readers: no NUL, no lone surrogates
HOSTILE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12
) | st.sampled_from(
    ["'; DROP TABLE chunks; --", '"', "\\", "%s", "{documents}", "$1", "a b", "red fox", "\t\n\r"]
)
IDS = st.sampled_from(["a", "b", "'", "d; --", 'e"', "ü/1"])
METADATA = st.dictionaries(
    HOSTILE, st.none() | st.booleans() | st.integers() | HOSTILE | st.lists(HOSTILE, max_size=2)
)
DOCUMENTS = st.dictionaries(
    IDS,
    st.tuples(st.none() | HOSTILE, st.lists(HOSTILE, max_size=3), METADATA),
    max_size=3,
)
CHANGES = st.lists(st.tuples(DOCUMENTS, st.sets(IDS, max_size=2)), min_size=1, max_size=4)


@pytest.mark.parametrize("store", STORES)
@examples(6)
@given(changes=CHANGES, query=HOSTILE)
def test_changes_leave_what_a_dict_would_contain(store, changes, query):
    expected = {}
    with temporary_folder() as folder:
        out = folder / "index"
        with create_index(out, make_manifest(store)):
            pass
        reader = DocumentIndex(out)
        for documents, deleted in changes:
            with update_index(out) as writer:
                put(writer, documents)
                expected |= documents
                known = [one for one in deleted if one in expected]
                writer.delete(known)
                for one in known:
                    del expected[one]
            assert reader.refresh()
            check_index(reader, expected, query)
        reader.store.drop()
        reader.close()


def check_index(index, expected, query):
    stored = {one.id: one for one in index.documents.values()}
    assert stored.keys() == expected.keys()
    for id_, (title, _, metadata) in expected.items():
        assert (stored[id_].title, dict(stored[id_].metadata)) == (title, metadata)
    count = sum(len(texts) for _, texts, _ in expected.values())
    assert index.store.count_chunks() == index.manifest.num_chunks == count
    vector = make_vector(query)
    hits = index.search_vectors(vector, 4)
    best = list_best(expected, vector, 4)
    np.testing.assert_allclose([h.score for h in hits], [b[0] for b in best], atol=1e-5)
    for hit in hits:
        texts = expected[index.documents[hit.chunk.document].id][1]
        assert texts[hit.chunk.number] == hit.chunk.text
    terms = find_terms(query) or ["red"]
    found = index.search_terms(terms, 100)
    named = {(index.documents[h.chunk.document].id, h.chunk.number) for h in found}
    assert named == list_matching(expected, terms)
    chosen = next(iter(expected), "a")
    only = index.search_vectors(vector, 100, parse_filter({"id": chosen}))
    assert len(only) == len(expected.get(chosen, (None, ()))[1])
