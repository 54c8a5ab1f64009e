"""Standard input and named pipes: what is in them is told by how they begin."""

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cloze.data.files import PathLike, endings
from cloze.data.streams import STDIN
from cloze.data.unpack import LONGEST, open_bytes

# An object, an array of objects, DREAM's of texts in arrays; laid out over several lines or not.
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:(?:\[\s*)*\{\s*(?:"|$)|(?:\[\s*){2,}"|[\[\s]+$)')


class Pipe:
    """A source that can be read once; what was read to tell its kind is read again."""

    def __init__(self, source: PathLike) -> None:
        self.name = STDIN if source == "-" else os.fspath(source)
        self._path = None if source == "-" else Path(source)
        self._stream: BinaryIO | None = None
        self._first = b""  # up to the first line that is not blank

    def kind(self, kinds: Mapping[str, str]) -> str:
        """How to read it: as an ending says, if it has one of `kinds`, else as it begins.

        What begins as JSON does is JSON, lines of it or a whole. Anything else are columns where
        `kinds` has them, or a table: with tabs, or with commas and no tab.
        """
        ending = "" if self._path is None else endings(self._path)[0]
        if ending in kinds:
            return kinds[ending]
        self._open()
        known = set(kinds.values())
        if _JSON.match(self._first) or known.isdisjoint(("tsv", "columns")):
            return "json"
        if "columns" in known:
            return "columns"
        return "csv" if b"," in self._first and b"\t" not in self._first else "tsv"

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Its bytes, from the first one."""
        stream = self._open()
        try:
            with io.BufferedReader(_Rejoined(self._first, stream)) as whole:
                yield whole
        finally:
            if self._path is not None:
                stream.close()

    def _open(self) -> BinaryIO:
        if self._stream is None:
            self._stream = sys.stdin.buffer if self._path is None else open_bytes(self._path)
            while not self._first.strip() and (line := self._stream.readline(LONGEST)):
                self._first += line
        return self._stream


class _Rejoined(io.RawIOBase):
    """What was taken from a stream, and what is left of it, as it comes."""

    def __init__(self, first: bytes, rest: BinaryIO) -> None:
        self._first = first
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        if self._first:
            taken, self._first = self._first[: len(buffer)], self._first[len(buffer) :]
        else:
            taken = self._rest.read1(len(buffer))  # type: ignore[attr-defined]  # of all that buffer
        buffer[: len(taken)] = taken
        return len(taken)
