"""Text to a corpus, once: in parallel, with bounded memory, and from where it stopped if killed."""

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
from cloze.data.document_encoder import SEGMENTERS, DocumentEncoder, EncoderSettings
from cloze.data.encoder_workers import EncoderWorkers
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
    """The segmenter of the options, called once: a missing library shows here, not in a worker."""
    segmenter = options.segmenter
    if isinstance(segmenter, str):
        segmenter = SEGMENTERS[segmenter]
    if segmenter is not None:
        segmenter("")
    return segmenter


@dataclass(frozen=True, kw_only=True)
class PreparationProgress:
    """How far a preparation has come."""

    file: str  # being read
    bytes: int  # of text
    documents: int
    sentences: int
    tokens: int
    shards: int
    reused: int  # of the shards: they were there already


def prepare_corpus(  # noqa: PLR0913 - the choices are keyword-only arguments
    sources: Source | list[Source],
    tokenizer: Tokenizer,
    folder: str | PathLike[str],
    options: CorpusOptions | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[PreparationProgress], object] | None = None,
    on_skip: Callable[[InputError], object] | None = None,
) -> Corpus:
    """Make a corpus of text, or open the one already made of the same text in the same way.

    The result does not depend on the number of workers. A run that was stopped goes on with the
    shards it has; when texts, tokenizer or options have changed, only what that touches is done
    again.

    Args:
        sources: what `cloze.data.sources.read_rows` reads.
        tokenizer: gives the ids.
        folder: where the corpus will be; made if missing.
        options: see `CorpusOptions`.
        workers: processes; as many as this one may use cores, when left out.
        progress: called after every shard.
        on_skip: is told what is wrong with each row that is passed over (`options.skip_bad`).
    """
    path, options = Path(folder), options or CorpusOptions()
    recipe = EncoderSettings.from_tokenizer(
        tokenizer, options.sentences, resolve_segmenter(options)
    )
    fingerprint, stable = _compute_fingerprint(sources, recipe, options)
    if stable and (ready := _find_by_fingerprint(path, fingerprint)):
        return ready
    try:
        with _lock_folder(path):
            if stable and (
                ready := _find_by_fingerprint(path, fingerprint)
            ):  # made while we waited
                return ready
            job = _Preparation(path, recipe, options, workers or _count_cores(), on_skip)
            for step in job.run(sources):
                if progress:
                    progress(step)
            job.finish(fingerprint)
            return Corpus.open(path)
    except OSError as error:
        raise convert_write_error(path, error) from error


def find_corpus_by_digest(folder: str | PathLike[str], digest: str) -> Corpus | None:
    """The corpus in a folder, if every byte is there and it is the one with this digest."""
    return _open_if_intact(Path(folder), lambda corpus: corpus.digest == digest)


class _Preparation:
    """One preparation: what to do, and what came of it so far."""

    def __init__(
        self,
        folder: Path,
        recipe: EncoderSettings,
        options: CorpusOptions,
        workers: int,
        on_skip: Callable[[InputError], object] | None,
    ) -> None:
        self._folder, self._settings, self._options = folder, recipe, options
        self._workers, self._on_skip = workers, on_skip
        self._salt = json.dumps(recipe.fingerprint, sort_keys=True)
        self._skipped = 0
        self._hashes = array("Q")  # of the documents
        self._paths: list[Path] = []  # of the shards
        self._sentences: list[Array] = []  # tokens in each, shard by shard
        self._documents: list[Array] = []  # sentences in each, shard by shard
        self._words = self._unknown = 0

    def run(self, sources: Source | list[Source]) -> Iterator[PreparationProgress]:
        """Write the shards, saying so after each."""
        chunks = DocumentChunks(
            read_rows(sources, column=self._options.text_column, on_error=self._handle_error)
        )
        size = documents = sentences = tokens = reused = 0
        for number, done in enumerate(self._write_shards(chunks), 1):
            shard = read_shard(done.path)
            self._add_shard(shard, continues=done.continues)
            size += done.size
            documents += len(shard.documents) - done.continues
            sentences += len(shard.sentences)
            tokens += len(shard.ids)
            reused += done.reused
            yield PreparationProgress(
                file=done.file,
                bytes=size,
                documents=documents,
                sentences=sentences,
                tokens=tokens,
                shards=number,
                reused=reused,
            )
        self._hashes = chunks.hashes

    def finish(self, fingerprint: Mapping[str, Any]) -> None:
        """Write the index, then the description; what is left of earlier corpora goes."""
        nothing = [np.zeros(0, np.int64)]
        lengths, counts = (
            np.concatenate(arrays or nothing) for arrays in (self._sentences, self._documents)
        )
        if not len(lengths):
            raise InputError("there is no text in the sources", fix="check what they hold")
        real = counts > 0  # a document of control characters leaves nothing
        hashes, counts = np.frombuffer(self._hashes, np.uint64)[real], counts[real]
        begins = np.concatenate([[0], counts.cumsum()])  # d + 1
        starts = np.concatenate([[0], lengths.cumsum()])  # s + 1
        held_out = choose_held_out(hashes, self._options.hold_out)
        index = self._folder / SHARDS / f"index-{self._index_key(held_out)}.safetensors"
        arrays = {
            "sentences": to_smallest_dtype(starts),
            "documents": to_smallest_dtype(begins),
            "held_out": held_out.view(np.uint8),
        }
        write_bytes(index, safetensors.numpy.save(arrays))
        files = {*self._paths, index}
        summary = CorpusSummary(
            documents=len(counts),
            held_out=int(held_out.sum()),
            sentences=len(lengths),
            tokens=int(starts[-1]),
            words=self._words,
            unknown=self._unknown,
            longest_sentence=int(lengths.max()),
            longest_document=int(np.diff(starts[begins]).max()),
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
        torn = self._folder.glob(f".{DESCRIPTION}.*")
        for path in {*(self._folder / SHARDS).iterdir(), *torn} - files:
            path.unlink(missing_ok=True)

    def _index_key(self, held_out: NDArray[np.bool_]) -> str:
        """A name for the index: other shards or another choice among the documents, another name.

        So a run that is killed before its last file leaves the corpus before it as it was.
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
        self._words += int(np.unpackbits(shard.words).sum())
        self._unknown += shard.num_unknown

    def _write_shards(self, chunks: Iterable[DocumentChunk]) -> Iterator["_PlannedShard"]:
        """The shard of every chunk in order, made here or by workers."""
        folder = self._folder / SHARDS
        folder.mkdir(exist_ok=True)
        chunks = iter(chunks)
        first = list(islice(chunks, 2))
        chunks = chain(first, chunks)
        if self._workers == 1 or len(first) <= 1:
            encoder = DocumentEncoder(self._settings)
            for chunk in chunks:
                done = self._plan_shard(chunk)
                if not done.reused:
                    write_shard(done.path, encoder(chunk.documents))
                yield done
            return
        with EncoderWorkers(self._workers, self._settings) as workers:
            yield from self._write_in_parallel(chunks, workers)

    def _write_in_parallel(
        self, chunks: Iterable[DocumentChunk], workers: EncoderWorkers
    ) -> Iterator["_PlannedShard"]:
        waiting: deque[tuple[_PlannedShard, Future[None] | None]] = deque()
        for chunk in chunks:
            done = self._plan_shard(chunk)
            future = None if done.reused else workers.write_shard(done.path, chunk.documents)
            waiting.append((done, future))
            # One chunk in every worker and one more ready: memory does not grow with the corpus.
            if len(waiting) > self._workers + 1:
                yield _wait_for_shard(*waiting.popleft())
        for done, future in waiting:
            yield _wait_for_shard(done, future)

    def _plan_shard(self, chunk: DocumentChunk) -> "_PlannedShard":
        path = self._folder / SHARDS / f"{chunk.compute_key(self._salt)}.safetensors"
        return _PlannedShard(
            path=path,
            reused=_is_intact_shard(path),
            continues=chunk.continues,
            size=chunk.size,
            file=chunk.file,
        )


@dataclass(frozen=True, kw_only=True)
class _PlannedShard:
    """A chunk whose shard is written, or about to be."""

    path: Path
    reused: bool
    continues: bool
    size: int
    file: str


def choose_held_out(hashes: NDArray[np.uint64], fraction: float) -> NDArray[np.bool_]:
    """Which documents are held out: those whose hash is low, so that others do not matter.

    Where a share is asked for, both parts have at least two, for a pair of sentences that do not
    belong together takes two documents; of two or three documents each part has at least one.
    """
    chosen = hashes < np.uint64(int(fraction * 2.0**64))
    least = min(2, len(hashes) // 2)
    if fraction and least:
        order = hashes.argsort(kind="stable")
        chosen[order[:least]] = True
        chosen[order[-least:]] = False
    return chosen


def _wait_for_shard(done: _PlannedShard, future: "Future[None] | None") -> _PlannedShard:
    if future is not None:
        future.result()
    return done


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_intact_shard(path: Path) -> bool:
    try:
        return path.exists() and read_shard(path).is_intact()
    except FolderError:
        return False


def _find_by_fingerprint(folder: Path, fingerprint: Mapping[str, Any]) -> Corpus | None:
    return _open_if_intact(folder, lambda corpus: corpus.fingerprint == fingerprint)


def _open_if_intact(folder: Path, wanted: Callable[[Corpus], bool]) -> Corpus | None:
    try:
        corpus = Corpus.open(folder)
    except FolderError:  # none yet, or damaged: what is whole will be kept
        return None
    # a changed byte would be learned from in silence: reading all of it once is a small price
    return corpus if wanted(corpus) and corpus.is_intact() else None


def _compute_fingerprint(
    sources: Source | list[Source], recipe: EncoderSettings, options: CorpusOptions
) -> tuple[Mapping[str, Any], bool]:
    """What a corpus is made of and how; and whether that alone can tell it from another."""
    inputs = fingerprint_files(sources)
    chosen = {
        "hold_out": options.hold_out,
        "column": options.text_column,
        "skip_bad": options.skip_bad,
    }
    return {"inputs": inputs or [], **recipe.fingerprint, **chosen}, inputs is not None


def check_corpus_folder(folder: Path) -> None:
    """Refuse a place that holds something other than a corpus."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file", fix="name a folder")
    foreign = {path.name for path in folder.glob("[!.]*")} - {DESCRIPTION, SHARDS}
    if foreign:
        raise FolderError(
            f"{folder} holds something else ({min(foreign)})", fix="name a new or an empty folder"
        )


def find_prepared_corpus(
    sources: Source | list[Source],
    tokenizer: Tokenizer,
    folder: str | PathLike[str],
    options: CorpusOptions | None = None,
) -> Corpus | None:
    """The corpus in a folder, if it is whole and `prepare` would make the same."""
    options = options or CorpusOptions()
    recipe = EncoderSettings.from_tokenizer(
        tokenizer, options.sentences, resolve_segmenter(options)
    )
    fingerprint, stable = _compute_fingerprint(sources, recipe, options)
    return _find_by_fingerprint(Path(folder), fingerprint) if stable else None


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time prepare a folder; the next then finds it ready."""
    check_corpus_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        with suppress(ImportError):  # not on Windows
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
