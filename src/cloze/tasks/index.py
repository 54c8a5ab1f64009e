"""`index`: make documents searchable: chunks, their vectors and their terms in a folder."""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import fingerprint_folder, name_source
from cloze.config import in_range
from cloze.data.documents import Document, DocumentColumns, count_left_out, read_documents
from cloze.data.images.documents import ImageDocument, read_image_documents
from cloze.data.map_blocks import Engine, ExecutorOptions, cut_blocks, map_blocks, uses_gpu
from cloze.data.sources import OnError, Sources, collect_sources, get_error_handler
from cloze.errors import ConfigError, InputError
from cloze.files import PathLike, expand_user
from cloze.progress import ProgressCallback, ProgressOption, open_progress
from cloze.results import Result
from cloze.retrieval.folder import (
    IndexWriter,
    Manifest,
    create_index,
    is_index_folder,
    read_manifest,
    update_index,
)
from cloze.retrieval.pgvector_store import remove_password
from cloze.retrieval.store import StoredDocument, find_store_kind
from cloze.tasks.chunk_embedder import ChunkEmbedder, ModelSource
from cloze.tasks.embed import embed
from cloze.tasks.image_inputs import make_thumbnail, reads_images
from cloze.tasks.index_images import ImageEmbedder
from cloze.tasks.inputs import open_model

DEFAULT_MODEL = "cloze-en"
CHUNK_TOKENS, OVERLAP = 200, 40
# Documents whose chunks are sorted by length, embedded and stored together.
_BLOCK_ROWS, _BLOCK_CHARS = 8192, 1 << 22
_IMAGE_CHARS = 1 << 13  # so that a block has about 500 images


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
    # files in folders that are not read: how many have each ending
    left_out: Mapping[str, int] = field(default_factory=dict)

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
    engine: Engine = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    dtype: str = "float32",
    force: bool = False,
    progress: ProgressOption = None,
    on_error: OnError = "raise",
) -> IndexResult:
    """Make documents searchable: build an index, or add, update and delete documents of one.

    The index appears, or changes, when all documents are embedded. If the process is killed, the
    old index stays as it was. Documents that have not changed are not embedded again.

    Args:
        model: a model with embeddings, or its folder; with a model of texts and images, images are
            indexed. None: the model of the index that is updated, else cloze-en.
        documents: files, folders, globs, `-`; a data frame, a `datasets` object, mappings; or a
            list of these. A row of a table is a document; its other columns are metadata. A file
            of plain text, HTML or PDF (extra `pdf`) is a document. For a
            model of texts and images (CLIP): images, folders, tar files, or tables with a column of
            images; captions are their texts. None: only delete.
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
        engine: where documents are split and embedded: local, in this process, or ray, by workers
            that each load the model; this process writes the index.
        address: HOST:PORT of a running Ray cluster. Default: Ray is started on this machine.
        workers: number of Ray workers. Default: one per GPU, or one per core if no GPU is used.
        device: the device of a model that is not loaded yet, or of each worker. Default:
            auto-detected, or that of the loaded model.
        dtype: data type that a model that is not loaded yet computes with.
        force: replace an existing index.
        progress: show a progress bar, or not; a function is called with stage, done and total.
        on_error: "raise", or a function that is called with the error of each document that cannot
            be read; the others are indexed.
    """
    start = time.perf_counter()
    folder = expand_user(out)
    has_index = is_index_folder(folder) and not force
    _check_request(folder, documents, has_index=has_index, update=update, deletes=bool(delete))
    if isinstance(model, Model):
        device, dtype = model.device.type, model.inference_dtype
    executor = ExecutorOptions(
        engine=engine, address=address, workers=workers, use_gpu=uses_gpu(device)
    )
    here = {"device": "cpu"} if engine == "ray" else {"device": device, "dtype": dtype}
    opened = None if documents is None else _open_index_model(model, folder, here, force=force)
    work: AbstractContextManager[IndexWriter]
    if has_index:
        manifest = read_manifest(folder)
        if opened is not None:
            check_fingerprint(opened, manifest, folder)
        work = update_index(folder, _check_store(store, manifest))
    else:
        assert opened is not None  # deleting needs an index
        manifest, url = _make_manifest(opened, store, chunk_tokens, overlap)
        work = create_index(folder, manifest, force=force, url=url)
    columns = DocumentColumns(id=id_column, title=title_column, text=text_column)
    left_out: dict[str, int] = {}
    with open_progress(progress) as show, work as writer:
        writer.delete(list(dict.fromkeys(delete)))
        job = _Indexing(writer, show, get_error_handler(on_error))
        if documents is not None and opened is not None:
            listed, has_images = collect_sources(documents), manifest.content == "images"
            left_out = {} if has_images else count_left_out(listed)
            found: Iterable[Document] = (
                read_image_documents(listed, columns=columns, on_error=on_error)
                if has_images
                else read_documents(listed, columns=columns, unit=unit, on_error=on_error)
            )
            embedder = (ImageEmbedder if has_images else ChunkEmbedder)(
                model=ModelSource(manifest.model, manifest.fingerprint, device, dtype)
                if engine == "ray"
                else opened,
                chunk_tokens=manifest.chunk_tokens,
                overlap=manifest.overlap,
                batch_tokens=batch_tokens,
                progress=None if engine == "ray" else show,
            )
            job.run(found, embedder, executor)
    made = writer.manifest
    return IndexResult(
        folder=str(out),
        store=made.store,
        model=made.model,
        num_documents=made.num_documents,
        num_chunks=made.num_chunks,
        deleted=len(set(delete)),
        seconds=time.perf_counter() - start,
        left_out=left_out,
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


def _open_index_model(
    model: Model | PathLike | None, out: Path, options: Mapping[str, Any], *, force: bool
) -> Model:
    if model is None or isinstance(model, str | os.PathLike):
        model = load(find_index_model(model, out, force=force), **options)
    return open_model(model, "index")


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
        size=len(embed(model, model.tokenizer.sample_word)),
        content="images" if reads_images(model) else "texts",
        chunk_tokens=size,
        overlap=shared,
    )
    return manifest, url


class _Indexing:
    """Has documents chunked and embedded, block by block, and writes them."""

    def __init__(
        self,
        writer: IndexWriter,
        progress: ProgressCallback | None,
        report: Callable[[InputError], object],
    ) -> None:
        self._writer, self._progress, self._report = writer, progress, report
        self._seen: dict[str, str] = {}  # ids of this call, and where they are
        self._waiting: deque[list[StoredDocument]] = deque()  # of blocks that are embedded
        self.counts: dict[str, Any] = {
            **dict.fromkeys(("added", "updated", "unchanged"), 0),
            "model_seconds": 0.0,
        }

    def run(
        self, documents: Iterable[Document], embedder: ChunkEmbedder, executor: ExecutorOptions
    ) -> None:
        """Index documents; equal ones are skipped."""
        blocks = self._cut_blocks(self._select_changed(documents))
        for found in map_blocks(embedder, blocks, executor):
            self._writer.put(self._waiting.popleft(), found.chunks, found.vectors)
            self.counts["model_seconds"] += found.seconds
            if self._progress:
                self._progress("documents", len(self._seen), None)

    def _cut_blocks(
        self, documents: Iterable[tuple[Document, StoredDocument]]
    ) -> Iterator[list[Document]]:
        for block in cut_blocks(
            documents, max_rows=_BLOCK_ROWS, max_size=_BLOCK_CHARS, measure=measure_document
        ):
            self._waiting.append([stored for _, stored in block])
            yield [document for document, _ in block]

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
            if isinstance(one, ImageDocument) and not self._store_thumbnail(one, digest):
                continue
            self.counts["added" if known is None else "updated"] += 1
            yield (
                one,
                StoredDocument(
                    number=0, id=one.id, title=one.title, digest=digest, metadata=one.metadata
                ),
            )

    def _store_thumbnail(self, document: ImageDocument, digest: str) -> bool:
        """Store a small copy of an image; False if it cannot be read."""
        try:
            self._writer.thumbnails.write(digest, make_thumbnail(document.image))
        except InputError as error:
            self._report(error)
            return False
        return True


def measure_document(pair: tuple[Document, StoredDocument]) -> int:
    """The size of a document in a block, in characters; an image counts as a page of them."""
    document = pair[0]
    return len(document.text) + (_IMAGE_CHARS if isinstance(document, ImageDocument) else 0)


def compute_digest(document: Document) -> str:
    """A hash of the contents of a document."""
    values = [document.title, document.text, document.metadata]
    if isinstance(document, ImageDocument):
        values.append(document.content_digest)
    text = json.dumps(values, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()
