"""Recall of approximate stores on 100,000 chunks, and kills at any moment."""

import random
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

import cloze
from cloze.data.sources import read_rows
from cloze.retrieval.bm25 import Postings, find_terms
from cloze.retrieval.chunks import split_chunks
from cloze.retrieval.exact import search_exact
from cloze.retrieval.folder import DocumentIndex, create_index
from cloze.retrieval.store import Chunk, StoredDocument
from stores import make_manifest, make_vector, put

pytestmark = pytest.mark.stress
CHUNKS, QUERIES, SIZE, MIN_WORDS = 100_000, 500, 128, 20
SOURCE = Path(cloze.__file__).parents[1]


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


WRITE = """
import sys
from cloze.retrieval.folder import update_index
from stores import put

number = int(sys.argv[2])
while True:
    number += 1
    with update_index(sys.argv[1]) as writer:
        put(writer, {name: (None, [f"version {number}"], {}) for name in "abcdef"})
    print(number, flush=True)
"""


@pytest.mark.parametrize("store", ["exact", "lancedb", "postgresql"])
def test_kills_at_any_moment_leave_a_whole_version(store, tmp_path):
    out, rng, last = tmp_path / "index", random.Random(0), 0
    with create_index(out, make_manifest(store)) as writer:
        put(writer, {name: (None, ["version 0"], {}) for name in "abcdef"})
    for _ in range(20):
        command = [sys.executable, "-c", WRITE, str(out), str(last)]
        environment = {"PYTHONPATH": f"{SOURCE}:{Path(__file__).parents[1]}"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment, text=True
        ) as process:
            written = int(process.stdout.readline())
            time.sleep(rng.random() * 0.3)
            process.kill()
        index = DocumentIndex(out)
        (text,) = {hit.chunk.text for hit in index.search_vectors(make_vector("q"), 100)}
        assert index.store.count_chunks() == len(index.documents) == 6
        last = int(text.removeprefix("version "))
        assert last >= written
        index.close()
