"""Input files: which files a path, folder or glob names, decompression, and decoding into lines."""

import bz2
import codecs
import glob
import io
import lzma
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from cloze.errors import InputError, MissingExtraError
from cloze.files import PathLike

# What a name's ending says about the rows inside.
TEXT_FORMATS: Mapping[str, str] = {
    ".txt": "lines",
    ".text": "lines",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}

# Endings of packed files; `cloze.data.input_files` knows how each is read.
COMPRESSED_ENDINGS = (".gz", ".xz", ".bz2", ".zst")

# Compressed bytes fed to a decoder at once, and the most that bzip2 and xz may answer with: the
# densest data there is (zstd 1:32,000) then unfolds to 32 MiB at a time, whatever the file's size.
INPUT_BYTES = 2**10
MAX_OUTPUT_BYTES = 2**20
MAX_LINE_BYTES = 2**28  # bytes of one line, so that a file without line ends cannot fill the memory

_UNPACK = "give the name its ending (.txt.gz, …), or unpack it first"
_CONVERT = "convert the file: iconv -f UTF-16 -t UTF-8"
# What files that are no text begin with, and what to do about each.
NOT_TEXT: Mapping[bytes, tuple[str, str]] = {
    b"\x1f\x8b": ("gzip data", _UNPACK),
    b"\xfd7zXZ": ("xz data", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("zstd data", _UNPACK),
    b"PK\x03\x04": ("a zip archive", "unzip it, then read what was inside"),
    b"PAR1": ("a parquet file", "let its name end in .parquet"),
    b"%PDF-": ("a PDF", "extract its text first"),
    codecs.BOM_UTF16_LE: ("UTF-16 text", _CONVERT),
    codecs.BOM_UTF16_BE: ("UTF-16 text", _CONVERT),
}


def split_endings(path: PathLike) -> tuple[str, str]:
    """The data's own ending and the packing's, lower-case: `(".txt", ".gz")` of `a.txt.gz`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED_ENDINGS else ""
    return (suffixes[-1] if suffixes else ""), packing


def file_format(path: PathLike, formats: Mapping[str, str] = TEXT_FORMATS) -> str:
    """How to read a file, told by its name; a pipe, which has no ending, is as a .txt file.

    An ending "*" of `kinds` stands for all others.
    """
    ending, _ = split_endings(path)
    if ending in formats:
        return formats[ending]
    if "*" in formats:
        return formats["*"]
    if ".txt" in formats and Path(path).is_fifo():
        return formats[".txt"]
    raise InputError(
        f"{path}: files that end in {ending!r} are not read"
        if ending
        else f"{path}: the name has no ending that says what is inside",
        fix=f"rename it to end in one of {' '.join(formats)} "
        f"(each may be followed by {' '.join(COMPRESSED_ENDINGS)})"
        + (", or pipe plain text in and read -" if formats is TEXT_FORMATS else ""),
    )


def find_files(
    sources: PathLike | Iterable[PathLike], formats: Mapping[str, str] = TEXT_FORMATS
) -> list[Path]:
    """The files that paths, folders and globs stand for, in an order that never changes.

    A folder gives what lies in it at any depth, sorted, hidden files and other endings left out. A
    file that is named, or matched by a glob, must have an ending of `kinds`.
    """
    listed = [sources] if isinstance(sources, str | os.PathLike) else sources
    found: list[Path] = []
    for source in listed:
        try:
            name = os.path.expanduser(os.fspath(source))  # noqa: PTH111 - Path would eat a glob's "./"
            found += _found(name, formats)
        except OSError as error:  # a folder we may not list, a name too long to be one
            raise InputError(
                f"{str(source)[:200]}: {error.strerror}", fix="check the path and who may read it"
            ) from error
    return found


def _found(source: str, kinds: Mapping[str, str]) -> list[Path]:
    path = Path(source)
    if path.exists():
        return _files(path, kinds)
    if not glob.has_magic(source):
        raise InputError(
            f"{source}: there is no such file or folder",
            fix=f"check the spelling; relative paths start at {Path.cwd()}",
        )
    matched = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute ones
    if not matched:
        raise InputError(f"{source}: no file matches", fix="check the pattern, ** crosses folders")
    return [path for match in matched for path in _files(Path(match), kinds)]


def _files(path: Path, kinds: Mapping[str, str]) -> list[Path]:
    if not path.is_dir():
        file_format(path, kinds)
        return [path]
    inside = list(_inside(path, kinds, above=()))
    if not inside:
        raise InputError(
            f"{path}: no file in this folder ends in {' '.join(kinds)}",
            fix=f"point at files of these kinds, plain or packed ({' '.join(COMPRESSED_ENDINGS)})",
        )
    return inside


def _inside(folder: Path, kinds: Mapping[str, str], above: tuple[Path, ...]) -> Iterator[Path]:
    here = folder.resolve()
    if here in above:  # a link back to a folder we are in
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _inside(path, kinds, (*above, here))
        elif split_endings(path)[0] in kinds:
            yield path


class Decoder(Protocol):
    """What zlib, bz2, lzma and zstandard have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def decompress(self) -> Callable[..., bytes]: ...


class Compression(NamedTuple):
    """A way of compressing: its name, how to start decoding, and what to tell the decoder."""

    name: str
    start: Callable[[], Any]
    limits: Mapping[str, int] = {}


def _zstd() -> Decoder:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("reading .zst", extra="zstd") from error
    # `zstd --long=31`, as large public corpora are packed, looks back two gigabytes.
    decoder: Decoder = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
    return decoder


DECODERS: Mapping[str, Compression] = {
    ".gz": Compression("gzip", lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)),
    ".xz": Compression(
        "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), {"max_length": MAX_OUTPUT_BYTES}
    ),
    ".bz2": Compression("bzip2", bz2.BZ2Decompressor, {"max_length": MAX_OUTPUT_BYTES}),
    ".zst": Compression("zstd", _zstd),
}


def open_binary(path: PathLike) -> BinaryIO:
    """The bytes of a file, unpacked as its name says; reading broken ones raises `OSError`."""
    try:
        raw = open(path, "rb")  # noqa: PTH123, SIM115 - whoever asked closes it
    except OSError as error:
        raise InputError(
            f"{path}: cannot be opened: {error.strerror}", fix="check the path and who may read it"
        ) from error
    _, packing = split_endings(path)
    if not packing:
        return raw
    return io.BufferedReader(DecompressedFile(raw, DECODERS[packing]), buffer_size=2**16)


def open_text(path: PathLike) -> io.TextIOWrapper:
    """A file as a stream of UTF-8 text, unpacked, without a byte order mark.

    Bytes that are broken or not UTF-8 raise an `InputError` with their line.
    """
    return _Text(path)


class DecompressedFile(io.RawIOBase):
    """The decoded bytes of a file made of one or more compressed streams.

    The standard library takes rubbish after the first bzip2 or xz stream for the end of the file,
    and zstandard takes a cut file for a whole one. Here both are errors: text that cannot be read
    is never passed over.
    """

    def __init__(self, raw: BinaryIO, packing: Compression) -> None:
        self._raw = raw
        self._packing = packing
        self._decoder: Decoder | None = None  # None between two streams
        self._packed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        while not self._ready:
            if not self._refill():
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _refill(self) -> bool:
        """Decode a little more; False at the end of the file."""
        if self._decoder is None:
            taken = self._take()
            packed = taken.lstrip(b"\0")  # xz and tapes pad with zeros
            if not packed:
                return bool(taken)
            self._decoder = self._packing.start()
        elif getattr(self._decoder, "needs_input", True):
            packed = self._take()
            if not packed:
                raise OSError(f"the {self._packing.name} data is cut short")
        else:
            packed = b""
        self._ready = memoryview(self._decoded(self._decoder, packed))
        if self._decoder.eof:
            self._packed, self._decoder = self._decoder.unused_data, None
        return True

    def _take(self) -> bytes:
        packed, self._packed = self._packed or self._raw.read(INPUT_BYTES), b""
        return packed

    def _decoded(self, decoder: Decoder, packed: bytes) -> bytes:
        try:
            return decoder.decompress(packed, **self._packing.limits)
        except MemoryError:
            raise
        except Exception as error:  # each library has a class of its own, one of them optional
            raise OSError(f"the {self._packing.name} data is broken ({error})") from error


class UnreadableFileError(InputError):
    """Nothing more can be read of this file, be there lines left or not."""


class TextLines(Iterator[str]):
    """The lines of a stream as text, their endings kept, counted from 1 by `number`.

    A line that is not text raises `InputError`, and the next call goes on behind it; where the
    stream itself fails, `UnreadableError` is raised.
    """

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self._stream = stream
        self.file = file
        self.number = 0

    def __next__(self) -> str:
        try:
            line = self._stream.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise UnreadableFileError(
                f"{self.file}:{self.number + 1}: {error}", fix="fetch or pack the file again"
            ) from error
        self.number += 1
        if self.number == 1:
            line = self._first(line)
        if not line:
            raise StopIteration
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise UnreadableFileError(
                f"{self.file}:{self.number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB",
                fix="break it up, a paragraph per line",
            )
        return self._decoded(line)

    def _first(self, line: bytes) -> bytes:
        for magic, (what, fix) in NOT_TEXT.items():
            if line.startswith(magic):
                raise UnreadableFileError(f"{self.file}:1: this is {what}, not UTF-8 text", fix=fix)
        if b"\0" in line:
            raise UnreadableFileError(
                f"{self.file}:1: this is a binary file (it holds NUL bytes), not UTF-8 text",
                fix="leave it out, or extract its text first",
            )
        return line.removeprefix(codecs.BOM_UTF8)

    def _decoded(self, line: bytes) -> str:
        if b"\0" in line:
            raise InputError(
                f"{self.file}:{self.number}: the line holds a NUL byte",
                fix="remove it (tr -d '\\000'), or check that the file is text",
            )
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.file}:{self.number}: not UTF-8: byte 0x{line[error.start]:02x}"
                f" at position {error.start + 1} of the line ({error.reason})",
                fix="convert the file: iconv -f ITS-ENCODING -t UTF-8",
            ) from error


class _Text(io.TextIOWrapper):
    """Text whose errors name the file and the line."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(open_binary(path), encoding="utf-8-sig")
        self._path = path

    def read(self, size: int | None = -1) -> str:
        try:
            return super().read(size)
        except (UnicodeDecodeError, OSError) as error:
            raise self._located(error) from error

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        try:
            return super().readline(size)
        except (UnicodeDecodeError, OSError) as error:
            raise self._located(error) from error

    def _located(self, error: Exception) -> InputError:
        """The same error with its line, which only a second, slower reading tells."""
        with open_binary(self._path) as stream:
            try:
                deque(TextLines(stream, os.fspath(self._path)), maxlen=0)
            except InputError as located:
                return located
        return InputError(f"{self._path}: {error}", fix="read it again: it changed meanwhile")
