"""A store of plain files that compares every vector: exact, and without other libraries.

Each commit writes one segment, whose files are never changed: `NAME.npy` (vectors), `NAME.jsonl`
(chunks), `NAME.documents.jsonl`, `NAME.arrays.npz` (the document of each chunk, and where its line
starts) and `NAME.terms.npz` (postings of BM25). Deleted documents are listed in the state until
segments are merged.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.errors import FolderError
from cloze.files import atomic_file, read_text
from cloze.retrieval.bm25 import BM25, Postings
from cloze.retrieval.exact import search_exact
from cloze.retrieval.store import Chunk, Hit, StoredDocument, Vectors, list_terms

_FOLDER = "exact"
_MAX_SEGMENTS = 16
_MAX_DELETED = 0.3  # fraction of chunks of deleted documents, above which segments are merged
_MAX_DOCUMENT_BYTES = 1 << 34
_ENDINGS = (".npy", ".jsonl", ".documents.jsonl", ".arrays.npz", ".terms.npz")
T = TypeVar("T")
_Added = tuple[Sequence[StoredDocument], Sequence[Chunk], Vectors]


@dataclass(frozen=True, eq=False)
class Segment:
    """The files of one commit."""

    base: Path  # their name without the endings
    size: int

    @cached_property
    def vectors(self) -> Vectors:
        """The vectors (m d), read from the file when they are used."""
        found = self._read(".npy", lambda path: np.load(path, mmap_mode="c", allow_pickle=False))
        if found.ndim != 2 or found.shape[1] != self.size or found.dtype != np.float32:  # noqa: PLR2004
            raise _damaged_error(self._path(".npy"), f"its shape is {found.shape}")
        return found

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        def read(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return stored["documents"].astype(np.int64), stored["lines"].astype(np.int64)

        documents, lines = self._read(".arrays.npz", read)
        if not documents.shape == lines.shape == self.vectors.shape[:1]:
            raise _damaged_error(self._path(".arrays.npz"), "its size differs from the vectors'")
        return documents, lines

    @property
    def documents_of_chunks(self) -> NDArray[np.int64]:
        """The number of the document of each chunk (m)."""
        return self._arrays[0]

    @cached_property
    def documents(self) -> list[StoredDocument]:
        path = self._path(".documents.jsonl")
        text = read_text(path, max_bytes=_MAX_DOCUMENT_BYTES) if path.exists() else ""
        return [_parse(line, StoredDocument, path) for line in text.split("\n") if line]

    @cached_property
    def postings(self) -> Postings:
        return Postings.load(self._path(".terms.npz"))

    def read_chunk(self, row: int) -> Chunk:
        """The chunk of a row."""
        path = self._path(".jsonl")

        def read(_: Path) -> bytes:
            with path.open("rb") as file:
                file.seek(int(self._arrays[1][row]))
                return file.readline()

        return _parse(self._read(".jsonl", read).decode(errors="replace"), Chunk, path)

    def read_chunks(self) -> list[Chunk]:
        """All chunks."""
        return [self.read_chunk(row) for row in range(len(self.vectors))]

    def _path(self, ending: str) -> Path:
        return self.base.with_name(self.base.name + ending)

    def _read(self, ending: str, read: Callable[[Path], T]) -> T:
        path = self._path(ending)
        try:
            return read(path)
        except FileNotFoundError:
            raise FolderError(f"{path} is missing", fix="build the index again") from None
        except Exception as error:  # damaged files raise errors of many kinds
            raise _damaged_error(path, error) from error


def _damaged_error(path: Path, reason: object) -> FolderError:
    return FolderError(f"{path} is damaged: {reason}", fix="build the index again")


def _parse(line: str, kind: type[T], path: Path) -> T:
    try:
        return kind(**json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged_error(path, error) from None


class ExactStore:
    """The segments of a folder."""

    def __init__(
        self, folder: Path, state: Mapping[str, Any], *, size: int, device: str = "cpu"
    ) -> None:
        self._folder, self._size, self._device = folder / _FOLDER, size, device
        self._names: list[str] = [str(name) for name in state.get("segments", ())]
        if any(Path(name).name != name for name in self._names):
            raise FolderError(f"{folder} names files elsewhere", fix="build the index again")
        self._previous = list(self._names)  # of the version before, which others may still read
        self._deleted = {int(one) for one in state.get("deleted", ())}
        self._segments = [Segment(self._folder / name, size) for name in self._names]
        self._added: list[_Added] = []

    def read_documents(self) -> list[StoredDocument]:
        """All documents, by number."""
        every = (one for part in self._segments for one in part.documents)
        return sorted((o for o in every if o.number not in self._deleted), key=lambda o: o.number)

    def count_chunks(self) -> int:
        """The number of chunks."""
        return int(self._is_alive.sum())

    def read_revision(self) -> int:
        """The state names the segments, so nothing changes without it."""
        return 0

    @cached_property
    def _documents_of_chunks(self) -> NDArray[np.int64]:
        parts = [part.documents_of_chunks for part in self._segments]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def _is_alive(self) -> NDArray[np.bool_]:
        return ~np.isin(self._documents_of_chunks, list(self._deleted))

    @cached_property
    def _vectors(self) -> torch.Tensor:
        parts = [torch.from_numpy(part.vectors) for part in self._segments]
        whole = parts[0] if len(parts) == 1 else torch.cat([torch.zeros(0, self._size), *parts])
        return whole.to(self._device)

    @cached_property
    def _bm25(self) -> BM25:
        ends = np.cumsum([len(part.vectors) for part in self._segments])[:-1]
        return BM25(
            parts=[part.postings for part in self._segments],
            is_alive=np.split(self._is_alive, ends) if self._segments else [],
        )

    def search_vectors(
        self, vector: Vectors, k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest cosines."""
        allowed = self._is_alive & self._select(documents)
        scores, rows = search_exact(
            torch.from_numpy(np.array(vector, np.float32)[None]).to(self._device),
            self._vectors,
            k,
            allowed=None if allowed.all() else torch.from_numpy(allowed),
        )
        found = zip(scores[0].tolist(), rows[0].tolist(), strict=True)
        return [self._make_hit(row, score) for score, row in found if row >= 0]

    def search_terms(
        self, terms: Sequence[str], k: int, documents: Collection[int] | None = None
    ) -> list[Hit]:
        """The k chunks with the largest scores of BM25."""
        scores, rows = self._bm25.search(terms, k, self._select(documents))
        found = zip(scores.tolist(), rows.tolist(), strict=True)
        return [self._make_hit(row, score) for score, row in found]

    def _select(self, documents: Collection[int] | None) -> NDArray[np.bool_]:
        if documents is None:
            return np.ones(len(self._documents_of_chunks), bool)
        return np.isin(self._documents_of_chunks, list(documents))

    def _make_hit(self, row: int, score: float) -> Hit:
        for part in self._segments:
            if row < len(part.vectors):
                return Hit(chunk=part.read_chunk(row), score=score)
            row -= len(part.vectors)
        raise IndexError(row)

    def add(
        self, documents: Sequence[StoredDocument], chunks: Sequence[Chunk], vectors: Vectors
    ) -> None:
        """Add documents with all of their chunks and the vectors of these."""
        self._added.append((documents, chunks, np.asarray(vectors, np.float32)))

    def delete(self, documents: Collection[int]) -> None:
        """Delete the documents with these numbers."""
        self._deleted |= set(documents)
        self._forget()

    def commit(self) -> dict[str, Any]:
        """Write a segment; if there are many, or many documents are deleted, one of all."""
        added = [_leave_out(one, self._deleted) for one in self._added]
        self._previous = list(self._names)
        alive = self._is_alive
        is_wasteful = len(alive) and (~alive).mean() > _MAX_DELETED
        if is_wasteful or len(self._segments) >= _MAX_SEGMENTS:
            added = [(self.read_documents(), *self._read_alive()), *added]
            self._segments, self._names, self._deleted = [], [], set()
        if any(documents for documents, _, _ in added):
            self._write_segment(added)
        self._added = []
        self._forget()
        return {"segments": self._names, "deleted": sorted(self._deleted)}

    def _read_alive(self) -> tuple[list[Chunk], Vectors]:
        chunks = [one for part in self._segments for one in part.read_chunks()]
        kept = [one for one, alive in zip(chunks, self._is_alive, strict=True) if alive]
        return kept, self._vectors.cpu().numpy()[self._is_alive]

    def _write_segment(self, added: Sequence[_Added]) -> None:
        documents = [one for some, _, _ in added for one in some]
        chunks = [one for _, some, _ in added for one in some]
        name = os.urandom(8).hex()
        base = self._folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(f"{base}.npy") as file:
            np.save(file, np.concatenate([vectors for _, _, vectors in added]))
        lines = _write_lines(base.with_name(f"{name}.jsonl"), chunks)
        _write_lines(base.with_name(f"{name}.documents.jsonl"), documents)
        of_chunks = np.array([one.document for one in chunks], np.int64)
        with atomic_file(f"{base}.arrays.npz") as file:
            np.savez(file, documents=of_chunks, lines=np.array(lines, np.int64))
        Postings.from_terms(list_terms(documents, chunks)).save(base.with_name(f"{name}.terms.npz"))
        self._segments.append(Segment(base, self._size))
        self._names.append(name)

    def name_server_data(self) -> dict[str, Any]:
        """Nothing: all data are in the folder."""
        return {}

    def remove_unused(self) -> None:
        """Remove segments that neither this version nor the one before uses."""
        names = {*self._names, *self._previous}
        used = {f"{name}{ending}" for name in names for ending in _ENDINGS}
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name not in used:
                    path.unlink(missing_ok=True)

    def _forget(self) -> None:
        for name in ("_documents_of_chunks", "_is_alive", "_vectors", "_bm25"):
            self.__dict__.pop(name, None)

    def drop(self) -> None:
        """Everything is in the folder."""

    def close(self) -> None:
        """Give back the memory."""
        self._forget()


def _leave_out(added: _Added, deleted: Collection[int]) -> _Added:
    """Without documents that were added and deleted before the commit."""
    documents, chunks, vectors = added
    kept = [n for n, one in enumerate(chunks) if one.document not in deleted]
    alive = [one for one in documents if one.number not in deleted]
    return alive, [chunks[n] for n in kept], vectors[kept]


def _write_lines(path: Path, rows: Iterable[StoredDocument | Chunk]) -> list[int]:
    """Write JSON lines; returns where each starts."""
    starts: list[int] = []
    position = 0
    with atomic_file(path) as file:
        for row in rows:
            starts.append(position)
            position += file.write(json.dumps(asdict(row)).encode() + b"\n")
    return starts
