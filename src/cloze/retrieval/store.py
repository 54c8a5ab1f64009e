"""Vector stores: what they keep, and the interface that all of them have.

A store keeps documents, chunks of their texts, a vector of each chunk, and its terms for BM25.
Changes become visible with `commit`, all at once. Vectors have length 1 (or 0), so inner products
are cosines. m chunks, d size of a vector.
"""

import importlib.util
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.config import one_of
from cloze.errors import InputError
from cloze.retrieval.bm25 import find_terms

Vectors = NDArray[np.float32]
KINDS = ("lancedb", "postgresql", "exact")
_URL_STARTS = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A document without its text. A changed document gets a new number."""

    number: int
    id: str
    title: str | None = None
    digest: str = ""  # of its contents
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of the text of a document."""

    document: int  # its number
    number: int  # in the document, from 0
    start: int  # characters of the document
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A chunk that was found, and its score: a cosine, or that of BM25."""

    chunk: Chunk
    score: float


class VectorStore(Protocol):
    """What a store does. Only one process writes; others read what was committed last."""

    def read_documents(self) -> list[StoredDocument]:
        """All documents, by number."""
        ...

    def count_chunks(self) -> int:
        """The number of chunks."""
        ...

    def read_revision(self) -> int:
        """A number that changes with every commit that the state does not show."""
        ...

    def add(
        self, documents: Sequence[StoredDocument], chunks: Sequence[Chunk], vectors: Vectors
    ) -> None:
        """Add documents with all of their chunks and the vectors of these (m d)."""
        ...

    def delete(self, documents: Collection[int]) -> None:
        """Delete the documents with these numbers, with their chunks."""
        ...

    def commit(self) -> dict[str, Any]:
        """Make the changes permanent; returns what has to be known to open this version."""
        ...

    def name_server_data(self) -> dict[str, Any]:
        """What `commit` will return, if a server keeps it when this process is gone; else {}."""
        ...

    def remove_unused(self) -> None:
        """Remove files of older versions, after the new one is recorded."""
        ...

    def search_vectors(
        self, vector: Vectors, k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest cosines, the largest first; only of these documents."""
        ...

    def search_terms(
        self, terms: Sequence[str], k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest scores of BM25, the largest first."""
        ...

    def drop(self) -> None:
        """Delete everything that is not in the folder of the index."""
        ...

    def close(self) -> None:
        """Give back what was opened; changes without `commit` are lost."""
        ...


def list_terms(documents: Sequence[StoredDocument], chunks: Sequence[Chunk]) -> list[list[str]]:
    """The terms of each chunk, after those of the title of its document."""
    titles = {one.number: find_terms(one.title or "") for one in documents}
    return [[*titles[one.document], *find_terms(one.text)] for one in chunks]


def find_store_kind(store: str | None) -> tuple[str, str | None]:
    """The kind of a store, and its address if it is a server."""
    if store is None:
        has_lancedb = importlib.util.find_spec("lancedb") is not None
        return ("lancedb" if has_lancedb else "exact"), None
    if store.startswith(_URL_STARTS):
        return "postgresql", store
    if store == "postgresql":
        raise InputError(
            "the address of the PostgreSQL server is missing",
            fix="use postgresql://USER@HOST/DATABASE",
        )
    return one_of("store", store, KINDS), None


def open_store(
    kind: str, folder: Path, state: Mapping[str, Any], *, size: int, url: str | None = None
) -> VectorStore:
    """Open a store.

    Args:
        kind: one of `KINDS`.
        folder: folder of the index.
        state: what `commit` returned; empty for a new store.
        size: number of values of a vector.
        url: address of a server.
    """
    if kind == "lancedb":
        from cloze.retrieval.lancedb_store import LanceDBStore

        return LanceDBStore(folder, state, size=size)
    if kind == "postgresql":
        from cloze.retrieval.pgvector_store import PgVectorStore

        assert url is not None
        return PgVectorStore(url, state, size=size)
    from cloze.retrieval.exact_store import ExactStore

    return ExactStore(folder, state, size=size)
