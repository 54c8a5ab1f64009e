"""Indexing and searching chunks of text: cloze, sentence-transformers with faiss, and Chroma.

    python bench/index.py --chunks 20000 [--text FILE] [--peer-python FILE] [--json out.json]

Every system embeds the same chunks with the same model (all-MiniLM-L6-v2), in a process of its own
(`bench/index_systems.py`). The systems take turns: first each indexes a part of the chunks, then
the next part, and each query is asked of one after the other, so that other work on the machine
affects all of them. `model` is the part of the indexing time that is spent in tokenizer and model.
A query is timed with the model loaded, from its text to ten ids; `store` is the part after its
vector is known. Recall is the fraction of the ten chunks that an exact search finds. Memory is the
peak of the process above what it had with the model loaded; of maps of files only what was read.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import islice, pairwise
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from rich.table import Table

import cloze
from cloze.data.sources import read_rows
from cloze.plot.format import format_percent
from cloze.retrieval.chunks import split_chunks
from common import TEXT, minilm, print_result, versions

K = 10
OURS = ("cloze, lancedb", "cloze, exact", "cloze, postgresql")
PEERS = ("faiss, Flat", "faiss, HNSW32", "Chroma")
BASE = OURS[0]


def read_chunks(source: Path, count: int, size: int) -> list[str]:
    """Chunks of whole sentences."""
    tokenizer = cloze.load(minilm(), device="cpu").tokenizer

    def count_tokens(texts: list[str]) -> list[int]:
        return [len(ids) for ids in tokenizer.encode_ids(texts, add_special_tokens=False)]

    def iterate():
        for row in read_rows(source):
            for start, end in split_chunks(row.text, count_tokens, size, 0):
                yield row.text[start:end]

    return list(islice(dict.fromkeys(islice(iterate(), 2 * count)), count))


class System:
    """A process that indexes and searches."""

    def __init__(self, name: str, python: str, texts: Path, folder: Path) -> None:
        script = Path(__file__).with_name("index_systems.py")
        self.process = subprocess.Popen(
            [python, script, name, texts, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.seconds = self.model_seconds = 0.0
        self.queries: list[tuple[float, float]] = []  # milliseconds: whole, store
        self.found: list[list[int]] = []

    def ask(self, *words: object) -> dict:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a system failed at: {words}")
        return json.loads(line)

    def index(self, low: int, high: int) -> None:
        found = self.ask("index", low, high)
        self.seconds += found["seconds"]
        self.model_seconds += found["model_seconds"]

    def search(self, number: int) -> None:
        found = self.ask("search", number, K)
        self.queries.append((found["ms"], found["store_ms"]))
        self.found.append(found["ids"])

    def close(self) -> dict:
        sizes = self.ask("sizes")
        self.process.stdin.close()
        self.process.wait()
        return sizes


def summarize(system: System, count: int, expected: list[list[int]]) -> dict:
    whole, store = np.array(system.queries[1:]).T  # without the first, which opens files
    pairs = zip(system.found, expected, strict=True)
    return {
        "chunks_per_second": count / system.seconds,
        "model_fraction": system.model_seconds / system.seconds,
        "query_ms": [float(np.quantile(whole, q)) for q in (0.5, 0.99)],
        "store_ms": [float(np.quantile(store, q)) for q in (0.5, 0.99)],
        "recall": sum(len({*one} & {*best}) for one, best in pairs) / (K * len(expected)),
        **system.close(),
    }


def run(options: argparse.Namespace, folder: Path) -> dict[str, dict]:
    texts = folder / "texts.json"
    chunks = read_chunks(options.text, options.chunks + options.queries, options.chunk_tokens)
    texts.write_text(json.dumps(chunks[options.queries :] + chunks[: options.queries]))
    count = len(chunks) - options.queries
    names = [*OURS, *PEERS] if options.systems is None else options.systems
    pythons = {name: sys.executable if name in OURS else options.peer_python for name in names}
    systems = {
        name: System(name, pythons[name], texts, folder / f"{n}") for n, name in enumerate(names)
    }
    edges = np.linspace(0, count, options.rounds + 1).astype(int).tolist()
    for low, high in pairwise(edges):
        for name, system in systems.items():
            system.index(low, high)
            print(f"{name}: {high:,} chunks in {system.seconds:.0f} s", flush=True)
    for number in range(count, len(chunks)):
        for system in systems.values():
            system.search(number)
    expected = systems["cloze, exact"].found
    return {name: summarize(system, count, expected) for name, system in systems.items()}


def format_pair(values: list[float]) -> str:
    return " / ".join(f"{one:.1f}" for one in values)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--chunk-tokens", type=int, default=128)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--systems", action="append")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = run(options, Path(temporary))
    table = Table(title=f"{options.chunks:,} chunks, {options.queries} queries")
    headers = (
        "chunks/s",
        "ratio",
        "model",
        "query ms p50 / p99",
        "store ms p50 / p99",
        "recall@10",
    )
    for column in ("system", *headers, "memory MB", "disk MB"):
        table.add_column(column)
    for name, row in results.items():
        table.add_row(
            name,
            f"{row['chunks_per_second']:.0f}",
            f"{row['chunks_per_second'] / results[BASE]['chunks_per_second']:.2f}",
            format_percent(row["model_fraction"]),
            format_pair(row["query_ms"]),
            format_pair(row["store_ms"]),
            f"{row['recall']:.3f}",
            f"{row['memory_mb']:.0f}",
            f"{row['disk_mb']:.0f}",
        )
    packages = ("torch", "lancedb", "faiss-cpu", "chromadb", "sentence-transformers")
    print_result(table, versions(*packages), results=results, file=options.json)


if __name__ == "__main__":
    main()
