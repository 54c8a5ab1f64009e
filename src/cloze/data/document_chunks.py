"""A stream of rows cut into portions of work: the same ones whoever works, and however many."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from cloze.data.document_encoder import Document
from cloze.data.readers import Row

# A portion becomes one shard. Small ones first, so that a small corpus is shared out among all
# workers and a killed run loses little; larger ones later, so that a large corpus is not a
# thousand open files.
MIN_CHUNK_BYTES = 2**22  # bytes
MAX_CHUNK_BYTES = 2**26
CHUNKS_PER_SIZE = 32


@dataclass(kw_only=True)
class DocumentChunk:
    """Some documents; the first may continue the last of the chunk before."""

    continues: bool = False
    documents: list[Document] = field(default_factory=list)
    size: int = 0
    file: str = ""  # where the reading has got to

    def compute_key(self, salt: str) -> str:
        """A name that says what text is inside and, through the salt, what is done with it."""
        digest = blake2b(salt.encode(), digest_size=16)
        for document in self.documents:
            digest.update(len(document).to_bytes(8, "little"))
            for paragraph in document:
                digest.update(len(paragraph).to_bytes(8, "little"))
                digest.update(paragraph)
        return digest.hexdigest()


class DocumentChunks:
    """Cuts rows into chunks, and hashes every document on the way.

    A document longer than a chunk is cut too: a file without a blank line in it is one document,
    and need not fit in memory.
    """

    def __init__(self, rows: Iterable[Row], min_bytes: int = MIN_CHUNK_BYTES) -> None:
        self._rows = rows
        self._min_bytes = min_bytes
        self.hashes = array("Q")  # of the documents that ended so far

    def __iter__(self) -> Iterator[DocumentChunk]:
        number = 0
        chunk = DocumentChunk()
        hashed = None
        for row, begins in _mark_document_starts(self._rows):
            if begins:
                self._finish_document(hashed)
                hashed = blake2b(digest_size=8)
            if not chunk.documents:
                chunk.continues = not begins
            if begins or not chunk.documents:
                chunk.documents.append([])
            paragraph = row.text.encode()
            chunk.documents[-1].append(paragraph)
            chunk.size += len(paragraph)
            chunk.file = row.file
            if hashed is not None:
                hashed.update(paragraph + b"\n")
            if chunk.size >= min(self._min_bytes << number // CHUNKS_PER_SIZE, MAX_CHUNK_BYTES):
                yield chunk
                number += 1
                chunk = DocumentChunk()
        self._finish_document(hashed)
        if chunk.documents:
            yield chunk

    def _finish_document(self, hashed: "blake2b | None") -> None:
        if hashed is not None:
            self.hashes.append(int.from_bytes(hashed.digest(), "little"))


def _mark_document_starts(rows: Iterable[Row]) -> Iterator[tuple[Row, bool]]:
    """The rows that are not blank, and whether a document begins with each."""
    before: Row | None = None
    for row in rows:
        if not row.text.strip():
            before = None
            continue
        follows = before is not None and before.file == row.file and row.line > before.line
        yield row, row.is_document or not follows
        before = None if row.is_document else row
