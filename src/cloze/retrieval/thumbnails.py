"""Small copies of the images of an index, all in one file, found by the hash of their document.

    thumbnails/GENERATION.bin   PNG files one after the other, each after the hash of its document
    thumbnails/GENERATION.idx   a record for each: hash, position, number of bytes

Both files only grow, so that readers of an older version of the index find their images; what a
killed process has left at their ends is ignored. When more than half of the bytes belong to
documents that are no longer there, the others are copied to files of the next generation.
"""

import os
import re
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.files import atomic_file, remove_path

FOLDER = "thumbnails"
_DIGEST = re.compile(r"[0-9a-f]{8,64}")  # it comes from a file
_GENERATION = re.compile(r"[0-9]{1,9}")
_RECORD = np.dtype([("digest", "S64"), ("start", "<u8"), ("length", "<u4")])
_DIGEST_BYTES = 64
_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_BYTES = 1 << 17  # of an image
_MAX_UNUSED = 1 << 20  # bytes that are not worth a copy


class Thumbnails:
    """The images of the folder of an index; nothing in the files is trusted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def write(self, digest: str, png: bytes) -> None:
        """Store the image of a document; one that is too large is left out."""
        if not _DIGEST.fullmatch(digest) or len(png) > _MAX_BYTES:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        images, records = self._find_files()
        # if the process is killed, the document is not in the index, either
        with images.open("ab") as file:
            start = file.seek(0, os.SEEK_END)
            file.write(_make_header(digest) + png)
        with records.open("ab") as file:
            size = file.seek(0, os.SEEK_END)
            file.truncate(size - size % _RECORD.itemsize)
            file.write(np.array((digest, start, len(png)), _RECORD).tobytes())
        self._forget()

    def read(self, digest: str) -> bytes | None:
        """The image of a document as a PNG file; None if there is none."""
        found = self._read(digest)
        if found is None:  # another process may have written a new generation
            self._forget()
            found = self._read(digest)
        return found

    def remove_unused(self, used: Collection[str]) -> None:
        """Copy the images of these documents to new files, if the others take too much space."""
        images, records = self._find_files()
        if not records.is_file():
            return
        table, names = self._table, {one.encode() for one in used}
        rows = {bytes(one): n for n, one in enumerate(table["digest"]) if bytes(one) in names}
        kept = table[sorted(rows.values())]
        size = int((kept["length"] + np.uint64(_DIGEST_BYTES)).sum())
        if images.stat().st_size - size <= max(size, _MAX_UNUSED):
            return
        self._copy(kept)
        for path in (records, images):
            remove_path(path)
        self._forget()

    def _copy(self, kept: NDArray[Any]) -> None:
        """Write the next generation: its records last, which make it the newest."""
        images, records = (
            self._folder / f"{self._generation + 1}{path.suffix}" for path in self._find_files()
        )
        made = []
        with atomic_file(images) as file:
            for digest in (bytes(one).decode() for one in kept["digest"]):
                png = self._read(digest)
                if png is not None:
                    made.append((digest, file.tell(), len(png)))
                    file.write(_make_header(digest) + png)
        with atomic_file(records) as file:
            file.write(np.array(made, _RECORD).tobytes())

    def _read(self, digest: str) -> bytes | None:
        if not _DIGEST.fullmatch(digest):
            return None
        table, order = self._table, self._order
        row = int(np.searchsorted(table["digest"], digest.encode(), "right", sorter=order)) - 1
        if row < 0 or table["digest"][order[row]] != digest.encode():
            return None
        start, length = (int(table[name][order[row]]) for name in ("start", "length"))
        if length > _MAX_BYTES or start >= 1 << 62:
            return None
        try:
            with self._find_files()[0].open("rb") as file:
                file.seek(start)
                found = file.read(_DIGEST_BYTES + length)
        except OSError:
            return None
        header, png = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
        is_intact = header == _make_header(digest) and len(png) == length and png.startswith(_PNG)
        return png if is_intact else None

    @cached_property
    def _generation(self) -> int:
        names = (path.stem for path in self._folder.glob("*.idx"))
        return max((int(one) for one in names if _GENERATION.fullmatch(one)), default=0)

    def _find_files(self) -> tuple[Path, Path]:
        """The newest files: of the images, and of the records."""
        base = self._folder / str(self._generation)
        return base.with_suffix(".bin"), base.with_suffix(".idx")

    @cached_property
    def _table(self) -> NDArray[Any]:
        """The records, of which the last one of a document counts."""
        try:
            content = self._find_files()[1].read_bytes()
        except OSError:
            content = b""
        return np.frombuffer(content, _RECORD, count=len(content) // _RECORD.itemsize)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._table["digest"], kind="stable")

    def _forget(self) -> None:
        for name in ("_generation", "_table", "_order"):
            self.__dict__.pop(name, None)


def _make_header(digest: str) -> bytes:
    return digest.encode().ljust(_DIGEST_BYTES, b"\0")
