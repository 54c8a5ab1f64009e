"""Chunks: documents of a corpus cut into spans of equally many tokens, for retrieval.

A document is cut from its first token on; what remains at its end is not a chunk.
c chunks, m tokens of a chunk, d documents, n samples.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from cloze.data.batch import Bools, Ints
from cloze.data.corpus import Corpus
from cloze.errors import InputError


@dataclass(frozen=True, eq=False)
class ChunkTable:
    """The chunks of all documents of a corpus, in order."""

    corpus: Corpus
    chunk_length: int

    @cached_property
    def _documents(self) -> Ints:
        """The first token of each document, and the number of tokens: d + 1."""
        starts = self.corpus.sentence_starts[self.corpus.document_starts]
        return np.asarray(starts, np.int64)

    @cached_property
    def _document_ids(self) -> Ints:
        """The document of each chunk."""
        counts = np.diff(self._documents) // self.chunk_length
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def starts(self) -> Ints:
        """The first token of each chunk: c."""
        counts = np.diff(self._documents) // self.chunk_length
        number = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        return self._documents[self._document_ids] + number * self.chunk_length

    @cached_property
    def ends(self) -> Ints:
        """The token after the document of each chunk: c."""
        return self._documents[self._document_ids + 1]

    @cached_property
    def is_train(self) -> Bools:
        """Whether each chunk is of a training document: c."""
        found = np.zeros(len(self._documents) - 1, np.bool_)
        found[self.corpus.train.document_ids] = True
        return found[self._document_ids]

    @cached_property
    def digests(self) -> NDArray[np.int64]:
        """A hash of the tokens of each chunk's document, so that its copies are found: c."""
        hashes = np.zeros(len(self._documents) - 1, np.int64)
        for number in np.unique(self._document_ids).tolist():
            first, last = self._documents[number : number + 2].tolist()
            ids = np.ascontiguousarray(self.corpus.read_tokens(first, last)[0], "<u4")
            digest = blake2b(ids.data, digest_size=8).digest()
            hashes[number] = int.from_bytes(digest, "little", signed=True)
        return hashes[self._document_ids]

    def __len__(self) -> int:
        return len(self.starts)

    def read_chunk(self, number: int) -> Ints:
        """The tokens of a chunk."""
        first = int(self.starts[number])
        return self.corpus.read_tokens(first, first + self.chunk_length)[0].astype(np.int64)

    def find_spans(self, spans: Ints) -> tuple[Ints, Ints]:
        """The first chunk of each span of tokens (n 2), which begins with one, and their number."""
        first = np.searchsorted(self.starts, spans[:, 0])
        counts = np.diff(spans)[:, 0] // self.chunk_length
        return first, counts


def plan_chunk_spans(
    documents: Ints, *, chunk_length: int, max_tokens: int, rng: np.random.Generator
) -> Ints:
    """Cut documents (d 2, spans of tokens) into spans of up to `max_tokens`: n 2.

    Every span begins with a chunk. The first one of a document is shorter by a random number of
    chunks, so that the spans of an epoch differ from those of another.
    """
    chunks = max_tokens // chunk_length  # of a span
    if not chunks:
        raise InputError(
            f"a sample of {max_tokens} tokens has no room for a chunk of {chunk_length}",
            fix=f"use --max-length {chunk_length + 2} or more",
        )
    size = chunks * chunk_length
    first, last = documents.T
    shift = rng.integers(0, chunks, len(documents)) * chunk_length  # left out of the first span
    shift = np.where(last - first + shift > size, shift, 0)  # a short document stays whole
    counts = -(-(last - first + shift) // size)
    document = np.repeat(np.arange(len(documents)), counts)
    number = np.arange(len(document)) - np.repeat(counts.cumsum() - counts, counts)
    begin = (first - shift)[document] + number * size
    return np.stack(
        [np.maximum(begin, first[document]), np.minimum(begin + size, last[document])], 1
    )
