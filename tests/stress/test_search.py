"""Recall of approximate stores on 100,000 chunks, and kills at any moment."""

import time
from itertools import islice

import numpy as np
import pytest
import scipy.sparse
import torch

from cloze.data.sources import read_rows
from cloze.retrieval.bm25 import Postings, find_terms
from cloze.retrieval.chunks import split_chunks
from cloze.retrieval.exact import search_exact
from cloze.retrieval.folder import DocumentIndex, create_index
from cloze.retrieval.store import Chunk, StoredDocument
from stores import STORES, kill_indexing, make_manifest

pytestmark = pytest.mark.stress
CHUNKS, QUERIES, SIZE, MIN_WORDS = 100_000, 500, 128, 20


def read_chunks(text, count):
    """Different chunks of 20 to 64 words."""

    def count_words(texts):
        return [len(one.split()) for one in texts]

    def iterate():
        for row in read_rows(text):
            for start, end in split_chunks(row.text, count_words, 64, 0):
                yield row.text[start:end]

    long = (one for one in iterate() if len(one.split()) >= MIN_WORDS)
    return list(islice(dict.fromkeys(islice(long, 2 * count)), count))


def project_terms(chunks, size, seed=0):
    """TF-IDF vectors of chunks, projected to `size` dimensions at random, of length 1."""
    found = Postings.from_terms(map(find_terms, chunks))
    frequencies = np.diff(found.starts)
    columns = np.repeat(np.arange(len(frequencies)), frequencies)
    weights = np.log1p(found.counts) * np.log(len(chunks) / frequencies)[columns]
    shape = (len(chunks), len(frequencies))
    table = scipy.sparse.coo_array((weights, (found.rows, columns)), shape=shape).tocsr()
    vectors = table @ np.random.default_rng(seed).standard_normal((len(frequencies), size))
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)).astype("f4")


def measure_recall(store, folder, vectors, queries, k=10):
    """Recall@k of a store against exact search, and milliseconds per query."""
    documents = [StoredDocument(number=0, id=str(n)) for n in range(len(vectors))]
    chunks = [[Chunk(document=0, number=0, start=0, end=0, text="")] for _ in documents]
    with create_index(folder, make_manifest(store, size=vectors.shape[1])) as writer:
        writer.put(documents, chunks, vectors)
    index = DocumentIndex(folder)
    best, _ = search_exact(torch.from_numpy(queries), torch.from_numpy(vectors), k)
    hits = [index.search_vectors(query, k) for query in queries[:20]]  # opens everything
    start = time.perf_counter()
    hits = [index.search_vectors(query, k) for query in queries]
    seconds = time.perf_counter() - start
    index.store.drop()
    index.close()
    # by scores: of equal ones any may be found
    least = best[:, -1].tolist()
    pairs = zip(hits, least, strict=True)
    found = sum(hit.score >= score - 1e-5 for some, score in pairs for hit in some)
    return found / (k * len(queries)), 1000 * seconds / len(queries)


@pytest.mark.data
@pytest.mark.parametrize("store", ["lancedb", "postgresql"])
def test_recall_of_approximate_search(store, data_dir, tmp_path):
    chunks = read_chunks(data_dir / "text" / "wiki-00.txt.xz", CHUNKS + QUERIES)
    vectors = project_terms(chunks, SIZE)
    recall, _ = measure_recall(store, tmp_path / "index", vectors[QUERIES:], vectors[:QUERIES])
    print(f"{store}: recall@10 {recall:.4f}")  # noqa: T201
    assert recall >= 0.95


@pytest.mark.parametrize("mode", ["calls", "random"])
@pytest.mark.parametrize("store", STORES)
def test_kills_while_indexing(store, mode, tmp_path):
    """Old or new version, and the same command completes it: the checks are in `index_kills.py`."""
    outcomes = kill_indexing(store, tmp_path, 8, mode)
    assert {name.partition(": ")[2] for name in outcomes} == {"old", "new"}
    print(store, mode, outcomes)  # noqa: T201
