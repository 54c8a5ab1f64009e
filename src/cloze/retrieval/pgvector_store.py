"""A store in PostgreSQL with the extension pgvector (extra `pgvector`).

All changes up to `commit` are one transaction. Names of tables are made here, and every value is a
parameter, so no text of a user becomes part of a statement.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from cloze.errors import FolderError, InputError, MissingExtraError
from cloze.retrieval.bm25 import K1, B
from cloze.retrieval.store import Chunk, Hit, StoredDocument, Vectors, list_terms

_NAME = re.compile(r"cloze_[0-9a-f]{16}")
_MIN_INDEXED = 10_000  # chunks, below which every vector is compared
_MAX_INDEXED_SIZE = 2_000  # values of a vector, above which pgvector has no graph of them
_MAX_LISTED = 20_000  # documents of a filter up to which every vector of them is compared
_M, _EF_CONSTRUCTION = 16, 64  # neighbors of a vector in the graph, candidates for them
_EF_SEARCH, _MAX_EF_SEARCH = 200, 1000  # candidates of a search: docs/results/search.md
_MAX_BUILD_MEMORY = 1 << 20  # kB in which the graph is built; a larger one is built on disk
_CREATE = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE {documents} (
  number bigint PRIMARY KEY, id text NOT NULL UNIQUE, title text, digest text NOT NULL,
  metadata text NOT NULL);
CREATE TABLE {chunks} (
  id bigint PRIMARY KEY, document bigint NOT NULL, number integer NOT NULL,
  start_at bigint NOT NULL, end_at bigint NOT NULL, text text NOT NULL, length integer NOT NULL,
  vector vector({size}) NOT NULL);
CREATE TABLE {terms} (term text NOT NULL, chunk bigint NOT NULL, count integer NOT NULL);
CREATE TABLE {state} (revision bigint NOT NULL, chunks bigint NOT NULL, length bigint NOT NULL);
CREATE INDEX ON {chunks} (document);
CREATE INDEX ON {terms} (term);
CREATE INDEX ON {terms} (chunk);
INSERT INTO {state} VALUES (0, 0, 0)
"""
_SEARCH_VECTORS = """
SELECT document, number, start_at, end_at, text, -(vector <#> %(vector)s::vector) AS score
FROM {chunks}
WHERE %(documents)s::bigint[] IS NULL OR document = ANY(%(documents)s::bigint[])
ORDER BY vector <#> %(vector)s::vector LIMIT %(k)s
"""
# In float8 throughout, with one logarithm per term: arithmetic of numeric takes most of the time.
_SEARCH_TERMS = """
WITH found AS MATERIALIZED (
  SELECT term, chunk, count::float8 AS f FROM {terms} WHERE term = ANY(%(terms)s::text[])),
frequencies AS (SELECT term, count(*)::float8 AS n FROM found GROUP BY term),
weights AS MATERIALIZED (
  SELECT term, (%(k1)s::float8 + 1) * ln(1 + (
    (SELECT chunks::float8 FROM {state}) - n + 0.5::float8) / (n + 0.5::float8)) AS weight
  FROM frequencies),
scored AS (
  SELECT found.chunk, sum(weight * f / (f + %(k1)s::float8 * (
    1 - %(b)s::float8 + %(b)s::float8 * chunks.length
    / (SELECT greatest(length, 1)::float8 / greatest(chunks, 1) FROM {state})))) AS score
  FROM found JOIN weights USING (term) JOIN {chunks} AS chunks ON chunks.id = found.chunk
  WHERE %(documents)s::bigint[] IS NULL OR document = ANY(%(documents)s::bigint[])
  GROUP BY found.chunk ORDER BY score DESC, found.chunk LIMIT %(k)s)
SELECT document, number, start_at, end_at, text, score
FROM scored JOIN {chunks} ON id = chunk ORDER BY score DESC, chunk
"""


class PgVectorStore:
    """Four tables: documents, chunks, terms of chunks, and totals."""

    def __init__(self, url: str, state: Mapping[str, Any], *, size: int) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtraError("the store postgresql", extra="pgvector") from None
        self._psycopg = psycopg
        self._is_new = "table" not in state
        self._name = str(state.get("table") or f"cloze_{os.urandom(8).hex()}")
        if not _NAME.fullmatch(self._name):
            raise FolderError(
                f"{self._name[:40]!r} is not a table of an index", fix="build the index again"
            )
        self._is_writing = False
        self._size = size
        try:
            self._connection = psycopg.connect(url, autocommit=True)
        except psycopg.Error as error:
            raise InputError(
                f"PostgreSQL at {remove_password(url)}: {error}",
                fix="check the address and that the server runs; a password comes from PGPASSWORD",
            ) from None

    def _make(self, statement: str) -> Any:  # noqa: ANN401 - psycopg.sql.Composed
        """A statement with the names of the tables."""
        from psycopg import sql

        parts = ("documents", "chunks", "terms", "state")
        names = {part: sql.Identifier(f"{self._name}_{part}") for part in parts}
        return sql.SQL(statement).format(**names, size=sql.Literal(self._size))

    def _run(self, statement: str, values: Any = None) -> Any:  # noqa: ANN401
        try:
            return self._connection.execute(self._make(statement), values)
        except self._psycopg.Error as error:
            fix = "check the server, and that its extension pgvector is installed"
            raise InputError(f"PostgreSQL: {error}", fix=fix) from None

    def _begin(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._run("BEGIN")
            if self._is_new:
                for statement in _CREATE.split(";"):
                    self._run(statement)
                self._is_new = False

    def read_documents(self) -> list[StoredDocument]:
        """All documents, by number."""
        if self._is_new:
            return []
        rows = self._run(
            "SELECT number, id, title, digest, metadata FROM {documents} ORDER BY number"
        )
        return [
            StoredDocument(
                number=number, id=id_, title=title, digest=digest, metadata=json.loads(metadata)
            )
            for number, id_, title, digest, metadata in rows
        ]

    def count_chunks(self) -> int:
        """The number of chunks."""
        return 0 if self._is_new else int(self._run("SELECT chunks FROM {state}").fetchone()[0])

    def read_revision(self) -> int:
        """The number of commits: other machines may change the tables, too."""
        return 0 if self._is_new else int(self._run("SELECT revision FROM {state}").fetchone()[0])

    def search_vectors(
        self, vector: Vectors, k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest cosines."""
        if self._is_new:
            return []
        uses_graph = documents is None or len(documents) > _MAX_LISTED
        with self._open_block():
            if uses_graph:
                self._run("SET LOCAL hnsw.iterative_scan = strict_order")
                candidates = min(max(_EF_SEARCH, k), _MAX_EF_SEARCH)
                self._run("SELECT set_config('hnsw.ef_search', %s, true)", [str(candidates)])
            else:
                self._run("SET LOCAL enable_indexscan = off")
            return _make_hits(self._run(_SEARCH_VECTORS, self.make_values(vector, k, documents)))

    def make_values(
        self, vector: Vectors, k: int, documents: Collection[int] | None = None
    ) -> dict[str, Any]:
        """The parameters of a search for vectors."""
        listed = None if documents is None else [int(one) for one in documents]
        return {"vector": _format_vector(vector), "documents": listed, "k": k}

    @contextmanager
    def _open_block(self) -> Iterator[None]:
        """A transaction for settings of one query."""
        with self._connection.transaction():
            yield

    def search_terms(
        self, terms: Sequence[str], k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest scores of BM25."""
        if self._is_new:
            return []
        values = {
            "terms": list(dict.fromkeys(terms)),
            "documents": None if documents is None else [int(one) for one in documents],
            "k": k,
            "k1": K1,
            "b": B,
        }
        return _make_hits(self._run(_SEARCH_TERMS, values))

    def add(
        self, documents: Sequence[StoredDocument], chunks: Sequence[Chunk], vectors: Vectors
    ) -> None:
        """Add documents with all of their chunks and the vectors of these."""
        self._begin()
        first = self._run("SELECT coalesce(max(id), 0) + 1 FROM {chunks}").fetchone()[0]
        every = list_terms(documents, chunks)
        self._copy(
            "COPY {documents} (number, id, title, digest, metadata) FROM STDIN",
            (
                (one.number, one.id, one.title, one.digest, json.dumps(dict(one.metadata)))
                for one in documents
            ),
        )
        self._copy(
            "COPY {chunks} (id, document, number, start_at, end_at, text, length, vector) "
            "FROM STDIN",
            (
                (
                    *(first + n, one.document, one.number, one.start, one.end, one.text),
                    *(len(every[n]), _format_vector(vectors[n])),
                )
                for n, one in enumerate(chunks)
            ),
        )
        self._copy(
            "COPY {terms} (term, chunk, count) FROM STDIN",
            (
                (term, first + n, terms.count(term))
                for n, terms in enumerate(every)
                for term in dict.fromkeys(terms)
            ),
        )

    def _copy(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            with self._connection.cursor() as cursor, cursor.copy(self._make(statement)) as copy:
                for row in rows:
                    copy.write_row(row)
        except self._psycopg.Error as error:
            raise InputError(f"PostgreSQL: {error}", fix="check the documents") from None

    def delete(self, documents: Collection[int]) -> None:
        """Delete the documents with these numbers."""
        self._begin()
        numbers = [[int(one) for one in documents]]
        self._run(
            "DELETE FROM {terms} WHERE chunk IN "
            "(SELECT id FROM {chunks} WHERE document = ANY(%s::bigint[]))",
            numbers,
        )
        self._run("DELETE FROM {chunks} WHERE document = ANY(%s::bigint[])", numbers)
        self._run("DELETE FROM {documents} WHERE number = ANY(%s::bigint[])", numbers)

    def commit(self) -> dict[str, Any]:
        """End the transaction."""
        self._begin()
        self._run(
            "UPDATE {state} SET revision = revision + 1, "
            "chunks = (SELECT count(*) FROM {chunks}), "
            "length = (SELECT coalesce(sum(length), 0) FROM {chunks})"
        )
        if not self.has_graph() and self._size <= _MAX_INDEXED_SIZE:
            self._build_graph(self.count_chunks())
        self._run("COMMIT")
        self._is_writing = False
        return self.name_server_data()

    def name_server_data(self) -> dict[str, Any]:
        """The name of the tables."""
        return {"table": self._name}

    def has_graph(self) -> bool:
        """Whether vectors are found with an HNSW index, instead of comparing all."""
        found = self._run(
            "SELECT count(*) FROM pg_indexes WHERE tablename = %s AND indexdef LIKE %s",
            [f"{self._name}_chunks", "%USING hnsw%"],
        )
        return bool(found.fetchone()[0])

    def _build_graph(self, count: int) -> None:
        if count < _MIN_INDEXED:
            return
        kilobytes = count * (4 * self._size + 32 * _M) // 700  # with some to spare
        memory = f"{min(max(kilobytes, 1 << 16), _MAX_BUILD_MEMORY)}kB"
        self._run("SELECT set_config('maintenance_work_mem', %s, true)", [memory])
        self._run(
            "CREATE INDEX ON {chunks} USING hnsw (vector vector_ip_ops) "
            f"WITH (m = {_M}, ef_construction = {_EF_CONSTRUCTION})"
        )

    def remove_unused(self) -> None:
        """PostgreSQL does so itself."""

    def drop(self) -> None:
        """Drop the tables."""
        if not self._is_new:
            self._run("DROP TABLE IF EXISTS {documents}, {chunks}, {terms}, {state}")

    def close(self) -> None:
        """Close the connection; a transaction that is open is undone."""
        self._connection.close()


def _format_vector(vector: Vectors) -> str:
    return "[" + ",".join(map(repr, np.asarray(vector, np.float32).tolist())) + "]"


def _make_hits(rows: Iterable[Sequence[Any]]) -> list[Hit]:
    return [
        Hit(
            chunk=Chunk(document=document, number=number, start=start, end=end, text=text),
            score=float(score),
        )
        for document, number, start, end, text, score in rows
    ]


def remove_password(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host))
