"""Documents → chunks and their vectors: block by block, in this process or by workers of Ray."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.source import fingerprint_folder
from cloze.data.documents import Document
from cloze.errors import FolderError, InputError
from cloze.progress import ProgressCallback
from cloze.retrieval.chunks import split_chunks
from cloze.retrieval.store import Chunk, Vectors
from cloze.tasks.embed import embed
from cloze.tasks.similarity import normalize_rows

_MIN_TEXT = 0.5  # fraction of the model's length that a title leaves to the chunk


class EmbeddedBlock(NamedTuple):
    """The chunks of each document of a block, their vectors (m d), and the seconds it took."""

    chunks: list[list[Chunk]]
    vectors: Vectors
    seconds: float


@dataclass(frozen=True)
class ModelSource:
    """A model that each worker loads."""

    name: str  # absolute path, built-in name or "org/name"
    fingerprint: str  # of its files, which must be the same on every machine
    device: str | None
    dtype: str

    def load(self) -> Model:
        """Load the model where this is called."""
        model = load(self.name, device=self.device, dtype=self.dtype, quiet=True)
        if model.folder is None or fingerprint_folder(model.folder) != self.fingerprint:
            raise FolderError(
                f"a worker finds other files under the name of the model, {self.name}",
                fix="copy the model to the same folder on every machine",
            )
        return model


@dataclass(frozen=True, kw_only=True)
class ChunkEmbedder:
    """What splits and embeds documents: the function that `map_blocks` applies to blocks."""

    model: Model | ModelSource
    chunk_tokens: int
    overlap: int
    batch_tokens: int | None = None
    progress: ProgressCallback | None = None  # only in this process

    def __call__(self) -> Callable[[Sequence[Document]], EmbeddedBlock]:
        """Load the model, and return the function from documents to chunks with vectors."""
        model = self.model if isinstance(self.model, Model) else self.model.load()
        return lambda documents: self.embed(model, documents)

    def embed(self, model: Model, documents: Sequence[Document]) -> EmbeddedBlock:
        """The chunks of documents, and their vectors."""
        start = time.perf_counter()
        chunks = [self._split(model, one) for one in documents]
        texts = [
            make_chunk_text(document.title, one.text)
            for document, some in zip(documents, chunks, strict=True)
            for one in some
        ]
        vectors = embed_chunks(model, texts, batch_tokens=self.batch_tokens, progress=self.progress)
        return EmbeddedBlock(chunks, vectors, time.perf_counter() - start)

    def _split(self, model: Model, document: Document) -> list[Chunk]:
        size, tokenizer = self.chunk_tokens, model.tokenizer
        if document.title:
            most = model.max_length - tokenizer.num_special_tokens()
            left = most - tokenizer.count_tokens(document.title)
            size = max(1, min(size, max(left, int(most * _MIN_TEXT))))

        def count_tokens(texts: Sequence[str]) -> list[int]:
            found = tokenizer.encode_ids(texts, add_special_tokens=False)
            return [len(ids) for ids in found]

        spans = split_chunks(document.text, count_tokens, size, min(self.overlap, size - 1))
        return [
            Chunk(document=0, number=number, start=start, end=end, text=document.text[start:end])
            for number, (start, end) in enumerate(spans)
        ]


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
    return normalize_vectors(found)


def normalize_vectors(found: NDArray[np.float32]) -> Vectors:
    """Vectors of length 1 (m d), or 0 for a text without known tokens."""
    vectors = normalize_rows(found).astype(np.float32)
    if not np.isfinite(vectors).all():
        raise InputError("the model computes vectors with NaN", fix="check the model")
    return vectors
