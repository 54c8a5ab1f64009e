"""Groups a stream of rows into chunks of documents.

The chunks depend on the rows alone, not on the number of workers that encode them.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from cloze.data.document_encoder import Document
from cloze.data.readers import Row

# Each chunk becomes one shard. The first chunks are small, so that a small corpus is distributed
# over all workers and little work is lost if a run is killed. Later ones are larger, so that a
# large corpus does not consist of thousands of files.
MIN_CHUNK_BYTES = 2**22
MAX_CHUNK_BYTES = 2**26
CHUNKS_PER_SIZE = 32  # the size doubles after this many chunks


@dataclass(kw_only=True)
class DocumentChunk:
    """Some documents; the first one may continue the last one of the previous chunk."""

    continues: bool = False
    documents: list[Document] = field(default_factory=list)
    size: int = 0  # bytes
    file: str = ""  # of the last row

    def compute_key(self, salt: str) -> str:
        """A hash of what decides the shard: text, `continues`, and a salt for the encoding."""
        digest = blake2b(salt.encode(), digest_size=16)
        digest.update(bytes([self.continues]))
        for document in self.documents:
            digest.update(len(document).to_bytes(8, "little"))
            for paragraph in document:
                digest.update(len(paragraph).to_bytes(8, "little"))
                digest.update(paragraph)
        return digest.hexdigest()


class DocumentChunks:
    """Iterates over the chunks of a stream of rows, and hashes every document.

    A document that is longer than a chunk is split: a file without blank lines is one document, and
    need not fit into memory.
    """

    def __init__(self, rows: Iterable[Row], min_bytes: int = MIN_CHUNK_BYTES) -> None:
        self._rows = rows
        self._min_bytes = min_bytes
        self.hashes = array("Q")  # of the documents that are complete

    def __iter__(self) -> Iterator[DocumentChunk]:
        number = 0
        chunk = DocumentChunk()
        digest = None
        for row, is_start in _mark_document_starts(self._rows):
            if is_start:
                self._finish_document(digest)
                digest = blake2b(digest_size=8)
            if not chunk.documents:
                chunk.continues = not is_start
            if is_start or not chunk.documents:
                chunk.documents.append([])
            paragraph = row.text.encode()
            chunk.documents[-1].append(paragraph)
            chunk.size += len(paragraph)
            chunk.file = row.file
            if digest is not None:
                digest.update(paragraph + b"\n")
            if chunk.size >= min(self._min_bytes << number // CHUNKS_PER_SIZE, MAX_CHUNK_BYTES):
                yield chunk
                number += 1
                chunk = DocumentChunk()
        self._finish_document(digest)
        if chunk.documents:
            yield chunk

    def _finish_document(self, digest: "blake2b | None") -> None:
        if digest is not None:
            self.hashes.append(int.from_bytes(digest.digest(), "little"))


def _mark_document_starts(rows: Iterable[Row]) -> Iterator[tuple[Row, bool]]:
    """The rows that are not blank, each with whether it starts a document."""
    previous: Row | None = None
    for row in rows:
        if not row.text.strip():
            previous = None
            continue
        follows = previous is not None and previous.file == row.file and row.line > previous.line
        yield row, row.is_document or not follows
        previous = None if row.is_document else row
