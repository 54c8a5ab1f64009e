"""A store in LanceDB tables, which are files in the folder of the index (extra `index`).

Every change makes a new version of a table. The state names the versions that were committed, so
readers are not disturbed by a writer, and what a killed writer left is undone by the next one.
"""

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from cloze.errors import FolderError, MissingExtraError
from cloze.retrieval.store import Chunk, Hit, StoredDocument, Vectors, list_terms

_FOLDER = "lancedb"
_DOCUMENTS, _CHUNKS = "documents", "chunks"
_COLUMNS = ("document", "number", "start", "end", "text")
_MIN_INDEXED = 5_000  # chunks, below which every vector is compared
_M, _EF_CONSTRUCTION = 16, 100  # neighbors of a vector in the graph, candidates for them
_EF_SEARCH, _REFINED = 100, 2  # candidates of a search; times k, compared in full precision
_GRAPH_ROWS = 1 << 20  # vectors of a graph; of more there are several
_MAX_LISTED = 20_000  # documents of a filter up to which every vector of them is compared
# Each commit adds a graph of its new vectors; one of all is built again when there are more than
# these, or this many times more chunks.
_MAX_GRAPHS, _GROWTH = 32, 2
_KEPT = timedelta(days=1)  # versions that are younger are kept for readers


class LanceDBStore:
    """Two tables: documents and chunks."""

    def __init__(self, folder: Path, state: Mapping[str, Any], *, size: int) -> None:
        # without it, a warning is printed; read when LanceDB is imported
        os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")
        try:
            import lancedb
            import pyarrow as pa
        except ImportError:
            raise MissingExtraError("the store lancedb", extra="index") from None
        self._pa, self._size = pa, size
        self._state = dict(state)
        self._database = lancedb.connect(str(folder / _FOLDER))
        self._schemas = {
            _DOCUMENTS: pa.schema(
                [("number", pa.int64())]
                + [(name, pa.string()) for name in ("id", "title", "digest", "metadata")]
            ),
            _CHUNKS: pa.schema(
                [(name, pa.int64()) for name in _COLUMNS[:4]]
                + [(name, pa.string()) for name in ("text", "terms")]
                + [("vector", pa.list_(pa.float32(), size))]
            ),
        }
        self._written: dict[str, Any] = {}  # tables, opened for writing
        self._read: dict[str, Any] = {}  # tables at the committed version
        self._num_documents: int | None = None

    def _open(self, name: str) -> Any:  # noqa: ANN401 - LanceDB has few types
        """A table at the committed version."""
        if name not in self._read:
            try:
                table = self._database.open_table(name)
                table.checkout(int(self._state["versions"][name]))
            except Exception as error:  # LanceDB raises errors of many kinds
                raise FolderError(
                    f"{self._database.uri}: the table {name!r} cannot be opened: {error}",
                    fix="build the index again",
                ) from error
            self._read[name] = table
        return self._read[name]

    @property
    def _is_new(self) -> bool:
        return "versions" not in self._state

    def _open_to_write(self, name: str) -> Any:  # noqa: ANN401
        """A table to write to; what was written after the last commit is undone."""
        if name not in self._written:
            if self._is_new:
                table = self._database.create_table(name, schema=self._schemas[name])
            else:
                table = self._database.open_table(name)
                version = int(self._state["versions"][name])
                if table.version != version:
                    table.restore(version)
            self._written[name] = table
        return self._written[name]

    def read_documents(self) -> list[StoredDocument]:
        """All documents, by number."""
        if self._is_new:
            return []
        rows = self._open(_DOCUMENTS).to_arrow().to_pylist()
        found = [
            StoredDocument(
                number=row["number"],
                id=row["id"],
                title=row["title"],
                digest=row["digest"],
                metadata=json.loads(row["metadata"]),
            )
            for row in rows
        ]
        return sorted(found, key=lambda one: one.number)

    def count_chunks(self) -> int:
        """The number of chunks."""
        return 0 if self._is_new else int(self._open(_CHUNKS).count_rows())

    def read_revision(self) -> int:
        """The state names the versions, so nothing changes without it."""
        return 0

    def search_vectors(
        self, vector: Vectors, k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest cosines."""
        if self._is_empty(documents):
            return []
        rows = self.make_vector_query(vector, k, documents).to_arrow().to_pylist()
        return [_make_hit(row, 1 - row["_distance"]) for row in rows]

    def make_vector_query(
        self, vector: Vectors, k: int, documents: Collection[int] | None = None
    ) -> Any:  # noqa: ANN401
        """A query for the k nearest vectors: in graphs of them, or by comparing all."""
        table = self._open(_CHUNKS)
        query = table.search(np.asarray(vector, np.float32), query_type="vector")
        query = query.distance_type("dot").limit(k).select([*_COLUMNS, "_distance"])
        if documents is not None:
            query = query.where(self._make_condition(documents), prefilter=True)
        indexed = int(self._state.get("indexed", 0))
        if indexed and (documents is None or len(documents) > _MAX_LISTED):
            query = query.nprobes(_count_graphs(indexed)).refine_factor(_REFINED)
            query = query.ef(max(_EF_SEARCH, _REFINED * k))
        else:
            query = query.bypass_vector_index()
        return query

    def search_terms(
        self, terms: Sequence[str], k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest scores of BM25."""
        from lancedb.query import MatchQuery

        if self._is_empty(documents) or not terms:
            return []
        text = " ".join(dict.fromkeys(terms))
        match = MatchQuery(text, "terms")  # type: ignore[call-arg]  # the others have defaults
        query = self._open(_CHUNKS).search(match, query_type="fts")
        query = query.limit(k).select([*_COLUMNS, "_score"])
        if documents is not None:
            query = query.where(self._make_condition(documents), prefilter=True)
        return [_make_hit(row, row["_score"]) for row in query.to_arrow().to_pylist()]

    def _is_empty(self, documents: Collection[int] | None) -> bool:
        return self.count_chunks() == 0 or (documents is not None and not documents)

    def _make_condition(self, documents: Collection[int]) -> str:
        """A condition of SQL on the numbers of documents."""
        return f"document IN ({', '.join(str(int(one)) for one in documents)})"

    def add(
        self, documents: Sequence[StoredDocument], chunks: Sequence[Chunk], vectors: Vectors
    ) -> None:
        """Add documents with all of their chunks and the vectors of these."""
        pa = self._pa
        rows = [
            {
                "number": one.number,
                "id": one.id,
                "title": one.title,
                "digest": one.digest,
                "metadata": json.dumps(dict(one.metadata)),
            }
            for one in documents
        ]
        table = pa.Table.from_pylist(rows, schema=self._schemas[_DOCUMENTS])
        self._open_to_write(_DOCUMENTS).add(table)
        if not chunks:
            return
        flat = pa.array(np.ascontiguousarray(vectors, np.float32).ravel())
        terms = list_terms(documents, chunks)
        columns = {name: [getattr(one, name) for one in chunks] for name in _COLUMNS}
        columns |= {"terms": [" ".join(some) for some in terms]}
        columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, self._size)
        self._open_to_write(_CHUNKS).add(pa.table(columns, schema=self._schemas[_CHUNKS]))

    def delete(self, documents: Collection[int]) -> None:
        """Delete the documents with these numbers."""
        if documents:
            condition = self._make_condition(documents)
            self._open_to_write(_CHUNKS).delete(condition)
            self._open_to_write(_DOCUMENTS).delete(condition.replace("document", "number", 1))

    def commit(self) -> dict[str, Any]:
        """Index what was added, and return the versions of the tables."""
        tables = {name: self._open_to_write(name) for name in (_DOCUMENTS, _CHUNKS)}
        chunks = tables[_CHUNKS]
        count = chunks.count_rows()
        if count:
            self._build_indexes(chunks, count)
        self._state["versions"] = {name: int(table.version) for name, table in tables.items()}
        self._read, self._written = {}, {}
        return dict(self._state)

    def _build_indexes(self, table: Any, count: int) -> None:  # noqa: ANN401
        from lancedb.index import FTS, BTree, IvfHnswSq

        if not self._state.get("has_terms"):
            terms = FTS(
                base_tokenizer="whitespace",
                max_token_length=None,
                lower_case=False,
                stem=False,
                remove_stop_words=False,
                ascii_folding=False,
            )
            table.create_index("terms", config=terms)
            self._state["has_terms"] = True
        table.optimize(cleanup_older_than=_KEPT)  # merges files, adds new rows to the indexes
        indexed, graphs = (int(self._state.get(name, 0)) for name in ("indexed", "graphs"))
        if count >= max(_MIN_INDEXED, indexed * _GROWTH) or graphs >= _MAX_GRAPHS:
            config = IvfHnswSq(
                distance_type="dot",
                num_partitions=_count_graphs(count),
                m=_M,
                ef_construction=_EF_CONSTRUCTION,
            )
            table.create_index("vector", config=config)
            if not indexed:
                table.create_index("document", config=BTree())
            self._state |= {"indexed": count, "graphs": 1}
        elif indexed:
            self._state["graphs"] = graphs + 1

    def name_server_data(self) -> dict[str, Any]:
        """Nothing: all data are in the folder."""
        return {}

    def remove_unused(self) -> None:
        """Old versions are removed when a new one is committed."""

    def drop(self) -> None:
        """Everything is in the folder."""

    def close(self) -> None:
        """Give back what was opened."""
        self._read, self._written = {}, {}


def _count_graphs(rows: int) -> int:
    return math.ceil(rows / _GRAPH_ROWS)


def _make_hit(row: Mapping[str, Any], score: float) -> Hit:
    return Hit(chunk=Chunk(**{name: row[name] for name in _COLUMNS}), score=float(score))
