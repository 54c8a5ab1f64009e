"""Prepares a corpus from text: in parallel, in bounded memory; interrupted runs can be resumed."""

import json
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from cloze.data.config import CorpusOptions, Segmenter
from cloze.data.corpus import DESCRIPTION, SHARDS, Corpus, CorpusSummary, make_description
from cloze.data.document_chunks import DocumentChunk, DocumentChunks
from cloze.data.document_encoder import SEGMENTERS, Document, DocumentEncoder, EncoderSettings
from cloze.data.encoder_workers import EncoderWorkers
from cloze.data.map_blocks import Engine, ExecutorOptions, map_blocks
from cloze.data.readers import Row
from cloze.data.shards import (
    Array,
    Shard,
    convert_write_error,
    read_shard,
    to_smallest_dtype,
    write_shard,
)
from cloze.data.sources import Source, fingerprint_files, read_rows
from cloze.errors import FolderError, InputError
from cloze.files import write_bytes, write_json
from cloze.text.tokenizer import Tokenizer


def resolve_segmenter(options: CorpusOptions) -> Segmenter | None:
    """The segmenter of the options. It is called once here, to report a missing library early."""
    segmenter = options.segmenter
    if isinstance(segmenter, str):
        segmenter = SEGMENTERS[segmenter]
    if segmenter is not None:
        segmenter("")
    return segmenter


@dataclass(frozen=True, kw_only=True)
class PreparationProgress:
    """The progress of a preparation."""

    file: str  # that is being read
    bytes: int  # of text, so far
    documents: int
    sentences: int
    tokens: int
    shards: int
    reused: int  # shards that already existed


def prepare_corpus(  # noqa: PLR0913 - the choices are keyword-only arguments
    sources: Source | list[Source],
    tokenizer: Tokenizer,
    folder: str | PathLike[str],
    options: CorpusOptions | None = None,
    *,
    workers: int | None = None,
    engine: Engine = "local",
    address: str | None = None,
    progress: Callable[[PreparationProgress], object] | None = None,
    on_skip: Callable[[InputError], object] | None = None,
) -> Corpus:
    """Prepare a corpus from text, or open it if it was already prepared from the same text.

    The result does not depend on the number of workers or the engine. An interrupted run continues
    with the shards that exist; if the text, tokenizer or options have changed, only the shards that
    are affected are written again.

    Args:
        sources: files, folders, globs or iterables, as for `cloze.data.sources.read_rows`.
        tokenizer: the tokenizer that encodes the text.
        folder: folder of the corpus; it is created if it does not exist.
        options: see `CorpusOptions`.
        workers: number of processes (default: the available cores).
        engine: local, or ray: then the workers are those of a Ray cluster, whose machines share
            the folder.
        address: HOST:PORT of a running Ray cluster. Default: Ray is started on this machine.
        progress: called with the progress after every shard.
        on_skip: called with the error of each row that is skipped (`options.skip_bad`).
    """
    path, options = Path(folder), options or CorpusOptions()
    is_ray = engine == "ray"
    executor = ExecutorOptions(
        engine=engine, address=address, workers=workers if is_ray else None, use_gpu=False
    )
    settings = EncoderSettings.from_tokenizer(
        tokenizer, options.sentences, resolve_segmenter(options)
    )
    fingerprint, is_comparable = _compute_fingerprint(sources, settings, options)
    if is_comparable and (ready := _find_by_fingerprint(path, fingerprint)):
        return ready
    try:
        with _lock_folder(path):
            # another process may have prepared it while this one waited for the lock
            if is_comparable and (ready := _find_by_fingerprint(path, fingerprint)):
                return ready
            preparation = _Preparation(
                path,
                tokenizer,
                settings,
                options,
                executor if is_ray else workers or _count_cores(),
                on_skip,
            )
            for state in preparation.run(sources):
                if progress:
                    progress(state)
            preparation.finish(fingerprint)
            return Corpus.open(path)
    except OSError as error:
        raise convert_write_error(path, error) from error


def find_corpus_by_digest(folder: str | PathLike[str], digest: str) -> Corpus | None:
    """The corpus in a folder, if it is intact and has this digest."""
    return _open_if_intact(Path(folder), lambda corpus: corpus.digest == digest)


class _Preparation:
    """The state of one preparation."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        settings: EncoderSettings,
        options: CorpusOptions,
        workers: int | ExecutorOptions,  # processes of this machine, or of a Ray cluster
        on_skip: Callable[[InputError], object] | None,
    ) -> None:
        self._folder, self._tokenizer = folder, tokenizer
        self._settings, self._options = settings, options
        self._workers, self._on_skip = workers, on_skip
        self._salt = json.dumps(settings.fingerprint, sort_keys=True)
        self._skipped = 0
        self._hashes = array("Q")  # of the documents
        self._paths: list[Path] = []  # of the shards
        self._sentences: list[Array] = []  # number of tokens of each, by shard
        self._documents: list[Array] = []  # number of sentences of each, by shard
        self._num_words = self._num_unknown = 0

    def run(self, sources: Source | list[Source]) -> Iterator[PreparationProgress]:
        """Write the shards; yield the progress after each."""
        rows = read_rows(
            sources, text_column=self._options.text_column, on_error=self._handle_error
        )
        # other kinds of vocabularies encode any text
        chunks = DocumentChunks(self._check_rows(rows) if self._tokenizer.kind == "midi" else rows)
        size = documents = sentences = tokens = reused = 0
        for number, planned in enumerate(self._write_shards(chunks), 1):
            shard = read_shard(planned.path)
            self._add_shard(shard, continues=planned.continues)
            size += planned.size
            documents += len(shard.documents) - planned.continues
            sentences += len(shard.sentences)
            tokens += len(shard.ids)
            reused += planned.is_reused
            yield PreparationProgress(
                file=planned.file,
                bytes=size,
                documents=documents,
                sentences=sentences,
                tokens=tokens,
                shards=number,
                reused=reused,
            )
        self._hashes = chunks.hashes

    def finish(self, fingerprint: Mapping[str, Any]) -> None:
        """Write the index and the description, and remove the files of earlier corpora."""
        empty = [np.zeros(0, np.int64)]
        lengths, counts = (
            np.concatenate(arrays or empty) for arrays in (self._sentences, self._documents)
        )
        if not len(lengths):
            raise InputError(
                "there is no text in the sources", fix="check that the files are not empty"
            )
        has_tokens = counts > 0  # a document of control characters has none
        hashes, counts = np.frombuffer(self._hashes, np.uint64)[has_tokens], counts[has_tokens]
        document_starts = np.concatenate([[0], counts.cumsum()])  # d + 1, in sentences
        sentence_starts = np.concatenate([[0], lengths.cumsum()])  # s + 1, in tokens
        held_out = choose_held_out(hashes, self._options.hold_out)
        index = self._folder / SHARDS / f"index-{self._index_key(held_out)}.safetensors"
        arrays = {
            "sentences": to_smallest_dtype(sentence_starts),
            "documents": to_smallest_dtype(document_starts),
            "held_out": held_out.view(np.uint8),
        }
        write_bytes(index, safetensors.numpy.save(arrays))
        files = {*self._paths, index}
        summary = CorpusSummary(
            documents=len(counts),
            held_out=int(held_out.sum()),
            sentences=len(lengths),
            tokens=int(sentence_starts[-1]),
            words=self._num_words,
            unknown=self._num_unknown,
            longest_sentence=int(lengths.max()),
            longest_document=int(np.diff(sentence_starts[document_starts]).max()),
            bytes=sum(path.stat().st_size for path in files),
            skipped=self._skipped,
        )
        description = make_description(
            fingerprint=fingerprint,
            vocab_size=self._settings.vocab_size,
            summary=summary,
            index=index,
            shards=self._paths,
        )
        write_json(self._folder / DESCRIPTION, description)
        temporary = self._folder.glob(f".{DESCRIPTION}.*")  # left by a run that was killed
        for path in {*(self._folder / SHARDS).iterdir(), *temporary} - files:
            path.unlink(missing_ok=True)

    def _check_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows that the tokenizer can encode; errors name the file and the line."""
        for row in rows:
            try:
                self._tokenizer.check_texts([row.text])
            except InputError as error:
                problem = f"{row.file}:{row.line}: {error.problem}"
                self._handle_error(InputError(problem, fix=error.fix))
            else:
                yield row

    def _index_key(self, held_out: NDArray[np.bool_]) -> str:
        """A hash of the shards and the held-out documents, for the file name of the index.

        A new index has a new name, so that a run that is killed before it writes the description
        leaves the previous corpus intact.
        """
        digest = blake2b(held_out.tobytes(), digest_size=16)
        for path in self._paths:
            digest.update(path.name.encode())
        return digest.hexdigest()

    def _handle_error(self, error: InputError) -> None:
        if not self._options.skip_bad:
            raise error
        self._skipped += 1
        if self._on_skip:
            self._on_skip(error)

    def _add_shard(self, shard: Shard, *, continues: bool) -> None:
        sentences, documents = (a.astype(np.int64) for a in (shard.sentences, shard.documents))
        if continues:
            self._documents[-1][-1] += documents[0]
            documents = documents[1:]
        if len(documents):
            self._documents.append(documents)
        self._sentences.append(sentences)
        self._paths.append(shard.path)
        self._num_words += int(np.unpackbits(shard.words).sum())
        self._num_unknown += shard.num_unknown

    def _write_shards(self, chunks: Iterable[DocumentChunk]) -> Iterator["_PlannedShard"]:
        """Write the shard of every chunk, in order, in this process or in workers."""
        folder = self._folder / SHARDS
        folder.mkdir(exist_ok=True)
        chunks = iter(chunks)
        head = list(islice(chunks, 2))
        chunks = chain(head, chunks)
        if isinstance(self._workers, int) and self._workers > 1 and len(head) > 1:
            with EncoderWorkers(self._workers, self._settings) as workers:
                yield from self._write_in_parallel(chunks, workers)
            return
        # a single chunk is not worth the start of workers
        executor = None if isinstance(self._workers, int) or len(head) <= 1 else self._workers
        yield from map_blocks(
            _ShardWriter(self._settings, Path.cwd()), self._plan_jobs(chunks), executor
        )

    def _plan_jobs(self, chunks: Iterable[DocumentChunk]) -> Iterator["_ShardJob"]:
        for chunk in chunks:
            planned = self._plan_shard(chunk)
            yield planned, None if planned.is_reused else chunk.documents

    def _write_in_parallel(
        self, chunks: Iterable[DocumentChunk], workers: EncoderWorkers
    ) -> Iterator["_PlannedShard"]:
        assert isinstance(self._workers, int)
        waiting: deque[tuple[_PlannedShard, Future[None] | None]] = deque()
        for planned, documents in self._plan_jobs(chunks):
            future = None
            if documents is not None:
                future = workers.write_shard(planned.path, documents, continues=planned.continues)
            waiting.append((planned, future))
            # at most one chunk per worker and one more, so that memory use is bounded
            if len(waiting) > self._workers + 1:
                yield _wait_for_shard(*waiting.popleft())
        for planned, future in waiting:
            yield _wait_for_shard(planned, future)

    def _plan_shard(self, chunk: DocumentChunk) -> "_PlannedShard":
        path = self._folder / SHARDS / f"{chunk.compute_key(self._salt)}.safetensors"
        return _PlannedShard(
            path=path,
            is_reused=_is_intact_shard(path),
            continues=chunk.continues,
            size=chunk.size,
            file=chunk.file,
        )


@dataclass(frozen=True, kw_only=True)
class _PlannedShard:
    """The shard of a chunk."""

    path: Path
    is_reused: bool  # the file exists and is intact
    continues: bool  # the first document continues the last one of the previous shard
    size: int  # bytes of text
    file: str  # of the last row


_ShardJob = tuple[_PlannedShard, list[Document] | None]  # None: the shard exists


@dataclass(frozen=True)
class _ShardWriter:
    """Makes a function that encodes documents and writes their shard, in a worker."""

    settings: EncoderSettings
    folder: Path  # that paths are relative to; workers may run in another one

    def __call__(self) -> Callable[[_ShardJob], _PlannedShard]:
        encode, folder = DocumentEncoder(self.settings), self.folder

        def write(job: _ShardJob) -> _PlannedShard:
            planned, documents = job
            if documents is not None:
                encoded = encode(documents, continues=planned.continues)
                write_shard(folder / planned.path, encoded)
            return planned

        return write


def choose_held_out(hashes: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Which documents are held out: those with low hashes, independently of the other documents.

    If `fraction` is positive, the training and the held-out documents are at least two each,
    because negative pairs of next sentence prediction need two documents; of two or three
    documents, each part has at least one.
    """
    is_held_out = hashes < np.uint64(int(fraction * 2.0**64))
    minimum = min(2, len(hashes) // 2)
    if fraction and minimum:
        order = hashes.argsort(kind="stable")
        is_held_out[order[:minimum]] = True
        is_held_out[order[-minimum:]] = False
    return is_held_out


def _wait_for_shard(planned: _PlannedShard, future: "Future[None] | None") -> _PlannedShard:
    if future is not None:
        future.result()
    return planned


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_intact_shard(path: Path) -> bool:
    try:
        return path.exists() and read_shard(path).is_intact()
    except FolderError:
        return False


def _find_by_fingerprint(folder: Path, fingerprint: Mapping[str, Any]) -> Corpus | None:
    return _open_if_intact(folder, lambda corpus: corpus.fingerprint == fingerprint)


def _open_if_intact(folder: Path, matches: Callable[[Corpus], bool]) -> Corpus | None:
    try:
        corpus = Corpus.open(folder)
    except FolderError:  # missing or damaged; intact shards are kept
        return None
    # check the contents once, because training would not notice damaged text
    return corpus if matches(corpus) and corpus.is_intact() else None


def _compute_fingerprint(
    sources: Source | list[Source], settings: EncoderSettings, options: CorpusOptions
) -> tuple[Mapping[str, Any], bool]:
    """The inputs and settings of a corpus, and whether all inputs are files."""
    inputs = fingerprint_files(sources)
    chosen = {
        "hold_out": options.hold_out,
        "column": options.text_column,
        "skip_bad": options.skip_bad,
    }
    return {"inputs": inputs or [], **settings.fingerprint, **chosen}, inputs is not None


def check_corpus_folder(folder: Path) -> None:
    """Raise if the folder contains something other than a corpus."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file", fix="choose a folder")
    others = {path.name for path in folder.glob("[!.]*")} - {DESCRIPTION, SHARDS}
    if others:
        raise FolderError(
            f"the output folder {folder} contains files that are not of a prepared corpus "
            f"({min(others)})",
            fix="choose a new or an empty folder",
        )


def find_prepared_corpus(
    sources: Source | list[Source],
    tokenizer: Tokenizer,
    folder: str | PathLike[str],
    options: CorpusOptions | None = None,
) -> Corpus | None:
    """The corpus in a folder, if it is intact and `prepare_corpus` would write the same."""
    options = options or CorpusOptions()
    settings = EncoderSettings.from_tokenizer(
        tokenizer, options.sentences, resolve_segmenter(options)
    )
    fingerprint, is_comparable = _compute_fingerprint(sources, settings, options)
    return _find_by_fingerprint(Path(folder), fingerprint) if is_comparable else None


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Hold a lock, so that one process at a time prepares a folder."""
    check_corpus_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        with suppress(ImportError):  # not on Windows
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
