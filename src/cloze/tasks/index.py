"""`index`: make documents searchable: chunks, their vectors and their terms in a folder."""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.model import Model
from cloze.checkpoint.source import fingerprint_folder, name_source
from cloze.config import in_range
from cloze.data.documents import Document, DocumentColumns, read_documents
from cloze.data.sources import OnError, Sources, collect_sources
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, expand_user
from cloze.progress import ProgressCallback, ProgressOption, open_progress
from cloze.results import Result
from cloze.retrieval.chunks import split_chunks
from cloze.retrieval.folder import (
    IndexWriter,
    Manifest,
    create_index,
    is_index_folder,
    read_manifest,
    update_index,
)
from cloze.retrieval.pgvector_store import remove_password
from cloze.retrieval.store import Chunk, StoredDocument, Vectors, find_store_kind
from cloze.tasks.embed import embed
from cloze.tasks.inputs import open_model
from cloze.tasks.similarity import normalize_rows

DEFAULT_MODEL = "cloze-en"
CHUNK_TOKENS, OVERLAP = 200, 40
_GROUP = 8192  # chunks that are sorted by length, embedded and stored together
_MIN_TEXT = 0.5  # fraction of the model's length that a title leaves to the chunk


@dataclass(frozen=True, kw_only=True, repr=False)
class IndexResult(Result):
    """What has become of the documents, and what the index contains now."""

    folder: str
    store: str
    model: str
    num_documents: int
    num_chunks: int
    added: int
    updated: int
    unchanged: int
    deleted: int
    seconds: float
    model_seconds: float  # of these, spent in tokenizer and model

    record_columns = ("folder", "store", "model", "num_documents", "num_chunks")

    def to_records(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.to_dict()]


def index(
    model: Model | PathLike | None,
    documents: Sources | None,
    out: PathLike,
    *,
    update: bool = False,
    delete: Collection[str] = (),
    store: str | None = None,
    chunk_tokens: int | None = None,
    overlap: int | None = None,
    id_column: str | int | None = None,
    title_column: str | int | None = None,
    text_column: str | int | None = None,
    unit: str | None = None,
    batch_tokens: int | None = None,
    force: bool = False,
    progress: ProgressOption = None,
    on_error: OnError = "raise",
) -> IndexResult:
    """Make documents searchable: build an index, or add, update and delete documents of one.

    The index appears, or changes, when all documents are embedded. If the process is killed, the
    old index stays as it was. Documents that have not changed are not embedded again.

    Args:
        model: a model with embeddings, or its folder. None: the model of the index that is updated,
            else cloze-en.
        documents: files, folders, globs, `-`; a data frame, a `datasets` object, mappings; or a
            list of these. A row of a table is a document; its other columns are metadata. None:
            only delete.
        out: the folder of the index.
        update: add to an existing index; documents with a known id are replaced.
        delete: ids of documents to delete from an existing index.
        store: lancedb, exact, or the address of a PostgreSQL server with pgvector
            (postgresql://USER@HOST/DATABASE). Default: lancedb if it is installed, else exact.
        chunk_tokens: maximum number of tokens of a chunk. Default: 200, or less if the model reads
            fewer.
        overlap: maximum number of tokens of whole sentences that two chunks share. Default: 40.
        id_column: column of the ids: name or 1-based number. Default: auto-detected, else file and
            line.
        title_column: column of the titles. Default: auto-detected.
        text_column: column of the texts. Default: auto-detected.
        unit: what a document of plain text is: file, section (between blank lines) or line.
            Default: file; of standard input line.
        batch_tokens: maximum number of tokens in a batch; the default depends on the device.
        force: replace an existing index.
        progress: show a progress bar, or not; a function is called with stage, done and total.
        on_error: "raise", or a function that is called with the error of each document that cannot
            be read; the others are indexed.
    """
    start = time.perf_counter()
    folder = expand_user(out)
    has_index = is_index_folder(folder) and not force
    _check_request(folder, documents, has_index=has_index, update=update, deletes=bool(delete))
    work: AbstractContextManager[IndexWriter]
    if has_index:
        opened = _open_recorded(model, folder) if documents is not None else None
        work = update_index(folder, _check_store(store, read_manifest(folder)))
    else:
        opened = open_model(DEFAULT_MODEL if model is None else model, "index")
        manifest, url = _make_manifest(opened, store, chunk_tokens, overlap)
        work = create_index(folder, manifest, force=force, url=url)
    columns = DocumentColumns(id=id_column, title=title_column, text=text_column)
    with open_progress(progress) as show, work as writer:
        writer.delete(list(dict.fromkeys(delete)))
        job = _Indexing(writer, opened, batch_tokens, show)
        if documents is not None:
            found = read_documents(
                collect_sources(documents), columns=columns, unit=unit, on_error=on_error
            )
            job.run(found)
    made = writer.manifest
    return IndexResult(
        folder=str(out),
        store=made.store,
        model=made.model,
        num_documents=made.num_documents,
        num_chunks=made.num_chunks,
        deleted=len(set(delete)),
        seconds=time.perf_counter() - start,
        **job.counts,
    )


def _check_request(
    folder: Path, documents: object, *, has_index: bool, update: bool, deletes: bool
) -> None:
    if has_index and not update and not (deletes and documents is None):
        raise InputError(
            f"{folder} already contains an index",
            fix="add to it with --update (update=True in Python), or replace it with --force",
        )
    if not has_index and deletes:
        raise InputError(f"{folder} contains no index to delete from", fix="check the folder")
    if documents is None and not deletes:
        raise InputError("there are no documents", fix="pass files, a folder or rows")


def _open_recorded(model: Model | PathLike | None, folder: Path) -> Model:
    """The model of an index; another one is an error."""
    manifest = read_manifest(folder)
    opened = open_model(manifest.model if model is None else model, "index")
    check_fingerprint(opened, manifest, folder)
    return opened


def find_index_model(model: PathLike | None, out: PathLike, *, force: bool = False) -> str:
    """The folder or name of the model that `index` uses."""
    folder = expand_user(out)
    if model is None and is_index_folder(folder) and not force:
        return read_manifest(folder).model
    return DEFAULT_MODEL if model is None else str(model)


def check_fingerprint(model: Model, manifest: Manifest, folder: Path) -> None:
    """Raise if a model is not the one whose vectors are in an index."""
    if _find_fingerprint(model) != manifest.fingerprint:
        raise InputError(
            f"{folder} was made with the model {manifest.model}, but its files are different now "
            "or another model is given",
            fix="use the same model, or build the index again with --force",
        )


def _find_fingerprint(model: Model) -> str:
    if model.folder is None:
        raise InputError("the model was not saved", fix="save it, and load it from its folder")
    return fingerprint_folder(model.folder)


def _check_store(store: str | None, manifest: Manifest) -> str | None:
    """The address of the server of an index, with the password that may be given now."""
    if store is None:
        return None
    kind, url = find_store_kind(store)
    if kind != manifest.store or (url is not None and remove_password(url) != manifest.url):
        raise ConfigError(
            f"the store is {store}, but that of the index is {manifest.url or manifest.store}",
            fix="leave it out, or build the index again with --force",
        )
    return url


def _make_manifest(
    model: Model, store: str | None, chunk_tokens: int | None, overlap: int | None
) -> tuple[Manifest, str | None]:
    kind, url = find_store_kind(store)
    most = model.max_length - model.tokenizer.num_special_tokens()
    size = min(CHUNK_TOKENS, most) if chunk_tokens is None else chunk_tokens
    in_range("chunk_tokens", size, 1, most)
    shared = min(OVERLAP, size // 2) if overlap is None else overlap
    in_range("overlap", shared, 0, size - 1)
    manifest = Manifest(
        store=kind,
        url=None if url is None else remove_password(url),
        model=name_source(model.folder) if model.folder else "",
        fingerprint=_find_fingerprint(model),
        size=len(embed(model, "a")),
        chunk_tokens=size,
        overlap=shared,
    )
    return manifest, url


class _Indexing:
    """Chunks and embeds documents, in groups, and writes them."""

    def __init__(
        self,
        writer: IndexWriter,
        model: Model | None,
        batch_tokens: int | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._writer, self._model, self._progress = writer, model, progress
        self._batch_tokens = batch_tokens
        self._seen: dict[str, str] = {}  # ids of this call, and where they are
        self.counts: dict[str, Any] = {
            **dict.fromkeys(("added", "updated", "unchanged"), 0),
            "model_seconds": 0.0,
        }

    def run(self, documents: Iterable[Document]) -> None:
        """Index documents; equal ones are skipped."""
        for group in self._group_chunks(self._select_changed(documents)):
            stored, chunks, texts = zip(*group, strict=True)
            vectors = self._embed(list(chain.from_iterable(texts)))
            self._writer.put(stored, chunks, vectors)
            if self._progress:
                self._progress("documents", len(self._seen), None)

    def _select_changed(
        self, documents: Iterable[Document]
    ) -> Iterator[tuple[Document, StoredDocument]]:
        for one in documents:
            if one.id in self._seen:
                raise InputError(
                    f"{one.where}: the id {one.id[:80]!r} is also that of {self._seen[one.id]}",
                    fix="give every document its own id, or choose another --id-column",
                )
            self._seen[one.id] = one.where or "another document"
            digest = compute_digest(one)
            known = self._writer.documents.get(one.id)
            if known is not None and known.digest == digest:
                self.counts["unchanged"] += 1
                continue
            self.counts["added" if known is None else "updated"] += 1
            yield (
                one,
                StoredDocument(
                    number=0, id=one.id, title=one.title, digest=digest, metadata=one.metadata
                ),
            )

    def _group_chunks(
        self, documents: Iterable[tuple[Document, StoredDocument]]
    ) -> Iterator[list[tuple[StoredDocument, list[Chunk], list[str]]]]:
        """Groups of documents with their chunks and the texts of these to embed."""
        group: list[tuple[StoredDocument, list[Chunk], list[str]]] = []
        count = 0
        for document, stored in documents:
            chunks = self._split(document)
            texts = [make_chunk_text(document.title, one.text) for one in chunks]
            group.append((stored, chunks, texts))
            count += len(chunks)
            if count >= _GROUP:
                yield group
                group, count = [], 0
        if group:
            yield group

    def _split(self, document: Document) -> list[Chunk]:
        assert self._model is not None
        start = time.perf_counter()
        size = self._writer.manifest.chunk_tokens
        tokenizer = self._model.tokenizer
        if document.title:
            most = self._model.max_length - tokenizer.num_special_tokens()
            left = most - tokenizer.count_tokens(document.title)
            size = max(1, min(size, max(left, int(most * _MIN_TEXT))))

        def count_tokens(texts: Sequence[str]) -> list[int]:
            found = tokenizer.encode_ids(texts, add_special_tokens=False)
            return [len(ids) for ids in found]

        overlap = min(self._writer.manifest.overlap, size - 1)
        spans = split_chunks(document.text, count_tokens, size, overlap)
        self.counts["model_seconds"] += time.perf_counter() - start
        return [
            Chunk(
                document=0,
                number=number,
                start=span.start,
                end=span.end,
                text=document.text[span.start : span.end],
            )
            for number, span in enumerate(spans)
        ]

    def _embed(self, texts: list[str]) -> Vectors:
        assert self._model is not None
        start = time.perf_counter()
        vectors = embed_chunks(
            self._model, texts, batch_tokens=self._batch_tokens, progress=self._progress
        )
        self.counts["model_seconds"] += time.perf_counter() - start
        return vectors


def make_chunk_text(title: str | None, text: str) -> str:
    """What the model reads of a chunk: the title of its document first."""
    return f"{title}\n{text}" if title else text


def embed_chunks(
    model: Model,
    texts: list[str],
    *,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Vectors:
    """Vectors of length 1 (m d), or 0 for a text without known tokens."""
    found = embed(
        model,
        texts,
        truncation="head",
        batch_tokens=batch_tokens,
        progress=progress if progress is not None else False,
    )
    vectors = normalize_rows(found).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise InputError("the model computes vectors with NaN", fix="check the model")
    return vectors


def compute_digest(document: Document) -> str:
    """A hash of the contents of a document."""
    values = [document.title, document.text, document.metadata]
    text = json.dumps(values, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()
