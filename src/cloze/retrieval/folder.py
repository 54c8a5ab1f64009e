"""The folder of an index: `index.json` and a store.

`index.json` is written last, in one step, and names the version of the store that belongs to it. So
a process that is killed leaves the old index, and readers see the old one or the new one.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from cloze.checkpoint.atomic import atomic_folder, lock_folder
from cloze.config import Config, Range
from cloze.errors import ClozeError, FolderError, InputError
from cloze.files import PathLike, expand_user, find_leftovers, read_json, write_json
from cloze.retrieval.filters import Condition
from cloze.retrieval.store import (
    KINDS,
    Chunk,
    Hit,
    StoredDocument,
    Vectors,
    VectorStore,
    open_store,
)
from cloze.retrieval.thumbnails import Thumbnails

INDEX_FILE = "index.json"
REPLACED_FILE = "replaced.json"  # the index that was here before, until its tables are dropped
FORMAT = 2  # from 2 on, terms are singulars
_MAX_LISTED_COLUMNS = 20
_BUILD_AGAIN = "build the index again with `cloze index DOCUMENTS --out FOLDER --force`"


@dataclass(frozen=True, kw_only=True)
class Manifest(Config):
    """The contents of `index.json`."""

    store: str
    model: str  # folder, built-in name or "org/name"
    fingerprint: str  # of the files of the model
    size: Annotated[int, Range(1, 1 << 20)]  # of vectors
    chunk_tokens: Annotated[int, Range(1, 1 << 20)]
    overlap: Annotated[int, Range(0, 1 << 20)]
    url: str | None = None  # of a server, without a password
    content: Literal["texts", "images"] = "texts"  # what the vectors are of
    num_documents: Annotated[int, Range(0, 1 << 62)] = 0
    num_chunks: Annotated[int, Range(0, 1 << 62)] = 0
    next_document: Annotated[int, Range(0, 1 << 62)] = 0  # the number of the next new document
    format_version: int = FORMAT
    state: Any = field(default_factory=dict)  # of the store

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store not in KINDS or not isinstance(self.state, Mapping):
            raise FolderError(f"{INDEX_FILE} is damaged: store {self.store!r}", fix=_BUILD_AGAIN)
        if self.store == "postgresql" and self.url is None:
            raise FolderError(f"{INDEX_FILE} has no address of the server", fix=_BUILD_AGAIN)

    def open_store(self, folder: Path, url: str | None = None) -> VectorStore:
        """Open the store at this version; `url` may have a password, which is not in the file."""
        return open_store(self.store, folder, self.state, size=self.size, url=url or self.url)


def is_index_folder(folder: Path) -> bool:
    """Whether a folder contains an index."""
    try:
        return (folder / INDEX_FILE).is_file()
    except OSError:
        return False


def read_manifest(folder: Path) -> Manifest:
    """Read and check `index.json`."""
    path = folder / INDEX_FILE
    if not is_index_folder(folder):
        raise FolderError(
            f"{folder} is not an index: it has no {INDEX_FILE}",
            fix="build one: cloze index DOCUMENTS --out FOLDER",
        )
    return _read_manifest_file(path)


def _read_manifest_file(path: Path) -> Manifest:
    values = read_json(path, fix=_BUILD_AGAIN)
    version = values.get("format_version") if isinstance(values, Mapping) else None
    if version != FORMAT:
        raise FolderError(
            f"{path} has format_version {version}, not {FORMAT}",
            fix=f"update cloze, or {_BUILD_AGAIN}",
        )
    try:
        return Manifest(**values)
    except (TypeError, ClozeError) as error:
        raise FolderError(f"{path} is damaged: {error}", fix=_BUILD_AGAIN) from None


class DocumentIndex:
    """An index that is open for reading: documents, and searches for chunks."""

    def __init__(self, folder: PathLike) -> None:
        self.folder = expand_user(folder)
        self._open()

    def _open(self) -> None:
        stamp = self._read_stamp()
        self.manifest = read_manifest(self.folder)
        self.store: VectorStore = self.manifest.open_store(self.folder)
        self._thumbnails = Thumbnails(self.folder)
        for name in ("documents", "num_chunks"):
            self.__dict__.pop(name, None)
        self._filtered: tuple[tuple[Condition, ...], frozenset[int]] | None = None
        self._opened = stamp, self.store.read_revision()

    def refresh(self) -> bool:
        """Read the index again if it has changed; returns whether it has."""
        if self._opened == (self._read_stamp(), self.store.read_revision()):
            return False
        self.close()
        self._open()
        return True

    def _read_stamp(self) -> tuple[int, ...] | None:
        try:
            found = (self.folder / INDEX_FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    @cached_property
    def documents(self) -> dict[int, StoredDocument]:
        """The documents by their numbers."""
        return {one.number: one for one in self.store.read_documents()}

    @cached_property
    def num_chunks(self) -> int:
        """The number of chunks."""
        return self.store.count_chunks()

    def read_thumbnail(self, document: StoredDocument) -> bytes | None:
        """A small copy of an image, as a PNG file; None if there is none."""
        if self.manifest.content != "images":
            return None
        return self._thumbnails.read(document.digest)

    def search_vectors(
        self, vector: Vectors, k: int, conditions: tuple[Condition, ...] = ()
    ) -> list[Hit]:
        """The k chunks with the largest cosines, of documents that fulfil all conditions."""
        return self.store.search_vectors(vector, k, self._select(conditions))

    def search_terms(
        self, terms: Sequence[str], k: int, conditions: tuple[Condition, ...] = ()
    ) -> list[Hit]:
        """The k chunks with the largest scores of BM25."""
        return self.store.search_terms(terms, k, self._select(conditions))

    def _select(self, conditions: tuple[Condition, ...]) -> Collection[int] | None:
        """The numbers of the documents that fulfil all conditions; None: all."""
        if not conditions:
            return None
        if self._filtered is None or self._filtered[0] != conditions:
            self._check_columns(conditions)
            found = frozenset(
                one.number
                for one in self.documents.values()
                if all(rule.matches(_get_columns(one)) for rule in conditions)
            )
            self._filtered = conditions, found
        return self._filtered[1]

    def _check_columns(self, conditions: tuple[Condition, ...]) -> None:
        """Raise if a condition is on a column that no document has."""
        if not self.documents:
            return
        names = {name for one in self.documents.values() for name in _get_columns(one)}
        for column in (one.column for one in conditions if one.column not in names):
            close = get_close_matches(column, names, 1)
            listed = ", ".join(sorted(names)[:_MAX_LISTED_COLUMNS])
            raise InputError(
                f"no document has the column {column[:80]!r}",
                fix=f"did you mean {close[0]}?" if close else f"use one of: {listed}",
            )

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _get_columns(document: StoredDocument) -> Mapping[str, Any]:
    return {"id": document.id, "title": document.title, **document.metadata}


class IndexWriter:
    """Changes of an index, which become visible together."""

    def __init__(self, store: VectorStore, manifest: Manifest, folder: Path) -> None:
        self.store, self.manifest, self.folder = store, manifest, folder
        self.thumbnails = Thumbnails(folder)
        self.documents = {one.id: one for one in store.read_documents()}
        # a server may have committed a change before the process was killed
        used = max((one.number + 1 for one in self.documents.values()), default=0)
        self._next = max(manifest.next_document, used)

    def put(
        self,
        documents: Sequence[StoredDocument],
        chunks: Sequence[Sequence[Chunk]],
        vectors: Vectors,
    ) -> None:
        """Add documents, or replace those with the same ids; their numbers are assigned here."""
        self.delete([one.id for one in documents if one.id in self.documents])
        numbered = [replace(one, number=self._next + n) for n, one in enumerate(documents)]
        self._next += len(numbered)
        flat = [
            replace(chunk, document=one.number)
            for one, some in zip(numbered, chunks, strict=True)
            for chunk in some
        ]
        self.store.add(numbered, flat, vectors)
        self.documents |= {one.id: one for one in numbered}

    def delete(self, ids: Collection[str]) -> None:
        """Delete documents."""
        missing = next((one for one in ids if one not in self.documents), None)
        if missing is not None:
            raise InputError(
                f"there is no document {missing[:80]!r} in the index",
                fix="check the id; `cloze search` shows ids",
            )
        if ids:
            self.store.delete([self.documents.pop(one).number for one in ids])

    def commit(self) -> Manifest:
        """Make the changes permanent, and write `index.json` last."""
        state = self.store.commit()
        self.manifest = replace(
            self.manifest,
            state=state,
            num_documents=len(self.documents),
            num_chunks=self.store.count_chunks(),
            next_document=self._next,
        )
        write_json(self.folder / INDEX_FILE, asdict(self.manifest))
        self.store.remove_unused()
        if self.manifest.content == "images":
            self.thumbnails.remove_unused({one.digest for one in self.documents.values()})
        return self.manifest


@contextmanager
def create_index(
    out: PathLike, manifest: Manifest, *, force: bool = False, url: str | None = None
) -> Iterator[IndexWriter]:
    """A new index, whose folder appears at the end; nothing is left of it if something fails.

    A server keeps tables even if this process is killed. So they are named in a file before they
    are committed, and the next index in the same folder drops those that no index uses.
    """
    folder = expand_user(out)
    replaced = _read_replaced(folder) if force else None
    used = manifest if replaced is None else replaced
    for leftover in find_leftovers(Path(os.path.realpath(folder))):
        _drop_tables(leftover / INDEX_FILE, used, url)
    _drop_tables(folder / REPLACED_FILE, used, url)
    with atomic_folder(folder, force=force) as work:
        store = manifest.open_store(work, url)
        try:
            writer = IndexWriter(store, manifest, work)
            yield writer
            if state := store.name_server_data():
                write_json(work / INDEX_FILE, asdict(replace(manifest, state=state)))
            writer.commit()
            if replaced is not None and replaced.store == "postgresql":
                write_json(work / REPLACED_FILE, asdict(replaced))
        finally:
            store.close()
    _drop_tables(folder / REPLACED_FILE, writer.manifest, url)


def _drop_tables(path: Path, used: Manifest, url: str | None) -> None:
    """Drop the tables of the index that a file describes, unless `used` has them; remove the file.

    If the server cannot be reached, the file stays, and the next change of the index tries again.
    """
    with suppress(ClozeError):
        if not path.is_file():
            return
        found = _read_manifest_file(path)
        if found.store == "postgresql" and found.state != used.state:
            store = found.open_store(path.parent, url if found.url == used.url else None)
            try:
                store.drop()
            finally:
                store.close()
        path.unlink(missing_ok=True)


def _read_replaced(folder: Path) -> Manifest | None:
    """What `force` overwrites: an index, or nothing; another folder is an error."""
    if not folder.exists() or (folder.is_dir() and not os.listdir(folder)):  # noqa: PTH208
        return None
    if not is_index_folder(folder):
        raise InputError(
            f"{folder} is not an index, and is not overwritten", fix="choose another folder"
        )
    try:
        return read_manifest(folder)
    except FolderError:
        return None


@contextmanager
def update_index(out: PathLike, url: str | None = None) -> Iterator[IndexWriter]:
    """Change an index; other processes can read it meanwhile, but not change it."""
    folder = expand_user(out)
    read_manifest(folder)
    with lock_folder(folder, work="writing to"):
        manifest = read_manifest(folder)
        _drop_tables(folder / REPLACED_FILE, manifest, url)
        store = manifest.open_store(folder, url)
        try:
            writer = IndexWriter(store, manifest, folder)
            yield writer
            writer.commit()
        finally:
            store.close()
