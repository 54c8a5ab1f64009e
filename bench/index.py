"""Indexing and searching chunks of text: cloze, sentence-transformers with faiss, and Chroma.

    python bench/index.py --chunks 100000 [--text FILE] [--json out.json]

Every row embeds the same chunks with the same model (all-MiniLM-L6-v2). `model` is the part of the
indexing time that is spent in tokenizer and model. A query is timed with the model loaded, from its
text to ten ids; `store` is the part after its vector is known. Recall is the fraction of the ten
nearest chunks of an exact search with the same vectors that are found.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from rich.table import Table

import cloze
from cloze.data.sources import read_rows
from cloze.plot.format import format_percent
from cloze.retrieval.chunks import split_chunks
from cloze.retrieval.exact import search_exact
from cloze.tasks.index import embed_chunks
from common import TEXT, minilm, print_result, versions

K = 10


def read_chunks(source, model, count, size):
    """Chunks of the text, and queries: the first sentences of other paragraphs."""

    def count_tokens(texts):
        return [len(ids) for ids in model.tokenizer.encode_ids(texts, add_special_tokens=False)]

    def iterate():
        for row in read_rows(source):
            for start, end in split_chunks(row.text, count_tokens, size, 0):
                yield row.text[start:end]

    return list(islice(iterate(), count))


def time_queries(queries, embed, find):
    """Ids of each query, and milliseconds of a query and of its store."""
    find(embed(queries[0]))
    found, whole, store = [], 0.0, 0.0
    for query in queries:
        start = time.perf_counter()
        vector = embed(query)
        between = time.perf_counter()
        found.append(find(vector))
        end = time.perf_counter()
        whole, store = whole + end - start, store + end - between
    return found, 1000 * whole / len(queries), 1000 * store / len(queries)


def run_cloze(store, model, chunks, queries, folder):
    rows = [{"id": str(n), "text": chunk} for n, chunk in enumerate(chunks)]
    made = cloze.index(model, rows, folder / store, store=store, chunk_tokens=250, overlap=0)
    with cloze.open_index(folder / store, model=model) as index:
        documents = index.documents

        def embed(query):
            return embed_chunks(model, [query])[0]

        def find(vector):
            hits = documents.search_vectors(vector, K)
            return [int(documents.documents[hit.chunk.document].id) for hit in hits]

        found, whole, part = time_queries(queries, embed, find)
        index.search(queries[0], k=K, mode="hybrid")
        start = time.perf_counter()
        for query in queries:
            index.search(query, k=K, mode="hybrid")
        hybrid = 1000 * (time.perf_counter() - start) / len(queries)
    return made.seconds, made.model_seconds, found, whole, part, hybrid


def run_faiss(factory, chunks, queries):
    import faiss
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(minilm()), device="cpu")
    start = time.perf_counter()
    vectors = peer.encode(chunks, batch_size=32, normalize_embeddings=True)
    between = time.perf_counter()
    index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    seconds, in_model = time.perf_counter() - start, between - start

    def embed(query):
        return peer.encode([query], normalize_embeddings=True)

    found, whole, part = time_queries(
        queries, embed, lambda vector: index.search(vector, K)[1][0].tolist()
    )
    return seconds, in_model, found, whole, part, None


def run_chroma(chunks, queries, folder):
    import chromadb
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(minilm()), device="cpu")
    client = chromadb.PersistentClient(
        str(folder / "chroma"), settings=chromadb.Settings(anonymized_telemetry=False)
    )
    collection = client.create_collection("chunks", metadata={"hnsw:space": "ip"})
    start, in_model = time.perf_counter(), 0.0
    for low in range(0, len(chunks), 5000):
        some = chunks[low : low + 5000]
        between = time.perf_counter()
        vectors = peer.encode(some, batch_size=32, normalize_embeddings=True)
        in_model += time.perf_counter() - between
        ids = [str(low + n) for n in range(len(some))]
        collection.add(ids=ids, embeddings=vectors, documents=some)
    seconds = time.perf_counter() - start

    def embed(query):
        return peer.encode([query], normalize_embeddings=True)

    def find(vector):
        answer = collection.query(query_embeddings=vector, n_results=K)
        return [int(one) for one in answer["ids"][0]]

    found, whole, part = time_queries(queries, embed, find)
    return seconds, in_model, found, whole, part, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--chunk-tokens", type=int, default=128)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = cloze.load(minilm())
    texts = read_chunks(options.text, model, options.chunks + options.queries, options.chunk_tokens)
    chunks, queries = texts[options.queries :], texts[: options.queries]
    vectors = torch.from_numpy(embed_chunks(model, chunks))
    wanted = torch.from_numpy(np.stack([embed_chunks(model, [one])[0] for one in queries]))
    expected = search_exact(wanted, vectors, K)[1].tolist()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows: dict[str, Callable[[], tuple]] = {
            "cloze, lancedb": lambda: run_cloze("lancedb", model, chunks, queries, folder),
            "cloze, exact": lambda: run_cloze("exact", model, chunks, queries, folder),
            "sentence-transformers + faiss, Flat": lambda: run_faiss("Flat", chunks, queries),
            "sentence-transformers + faiss, HNSW32": lambda: run_faiss("HNSW32", chunks, queries),
            "sentence-transformers + Chroma": lambda: run_chroma(chunks, queries, folder),
        }
        for name, run in rows.items():
            try:
                seconds, in_model, found, whole, part, hybrid = run()
            except ImportError as error:
                print(f"{name}: {error.name} is not installed")
                continue
            pairs = zip(found, expected, strict=True)
            recall = sum(len({*one} & {*best}) for one, best in pairs) / (K * len(queries))
            results[name] = {
                "seconds": seconds,
                "chunks_per_second": len(chunks) / seconds,
                "model_fraction": in_model / seconds,
                "query_ms": whole,
                "store_ms": part,
                "hybrid_query_ms": hybrid,
                "recall": recall,
            }
            print(name, results[name], flush=True)
    table = Table(title=f"{len(chunks):,} chunks, {len(queries)} queries")
    for column in ("system", "chunks/s", "model", "query ms", "store ms", "hybrid ms", "recall@10"):
        table.add_column(column)
    for name, row in results.items():
        hybrid = row["hybrid_query_ms"]
        table.add_row(
            name,
            f"{row['chunks_per_second']:.0f}",
            format_percent(row["model_fraction"]),
            f"{row['query_ms']:.1f}",
            f"{row['store_ms']:.2f}",
            "–" if hybrid is None else f"{hybrid:.1f}",
            f"{row['recall']:.3f}",
        )
    packages = ("torch", "lancedb", "faiss-cpu", "chromadb", "sentence-transformers")
    print_result(table, versions(*packages), results=results, file=options.json)


if __name__ == "__main__":
    main()
