"""Input files: which files a path, folder or glob names, decompression, and decoding into lines."""

import bz2
import codecs
import glob
import io
import lzma
import os
import sys
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from cloze.errors import InputError, MissingExtraError
from cloze.files import PathLike, is_model_folder, list_model_folders, list_siblings

STDIN = "standard input"  # its name in errors

# File name endings and the format of the rows.
TEXT_FORMATS: Mapping[str, str] = {
    ".txt": "lines",
    ".text": "lines",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".mid": "midi",
    ".midi": "midi",
}

# Endings of compressed files.
COMPRESSED_ENDINGS = (".gz", ".xz", ".bz2", ".zst")

# Compressed bytes that are decoded at once, and the maximum output of bzip2 and xz. So at most
# 32 MiB are decompressed at a time, even at the highest compression ratio (zstd, 1:32,000).
INPUT_BYTES = 2**10
MAX_OUTPUT_BYTES = 2**20
MAX_LINE_BYTES = 2**28  # so that a file without line ends cannot fill the memory
PEEK_LINES, PEEK_BYTES = 1000, 2**20  # from which the delimiter of a table is detected

_DECOMPRESS = "add the ending to its name (.txt.gz, …), or decompress it first"
_CONVERT = "convert the file: iconv -f UTF-16 -t UTF-8"
# First bytes of files that are not text, and the fix for each.
NOT_TEXT: Mapping[bytes, tuple[str, str]] = {
    b"\x1f\x8b": ("gzip data", _DECOMPRESS),
    b"\xfd7zXZ": ("xz data", _DECOMPRESS),
    b"\x28\xb5\x2f\xfd": ("zstd data", _DECOMPRESS),
    b"PK\x03\x04": ("a zip archive", "unzip it and read the files inside"),
    b"PAR1": ("a parquet file", "rename it to end in .parquet"),
    b"%PDF-": ("a PDF", "extract its text first"),
    codecs.BOM_UTF16_LE: ("UTF-16 text", _CONVERT),
    codecs.BOM_UTF16_BE: ("UTF-16 text", _CONVERT),
}


def split_endings(path: PathLike) -> tuple[str, str]:
    """The ending of the data and of the compression, in lower case: `(".txt", ".gz")`."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED_ENDINGS else ""
    return (suffixes[-1] if suffixes else ""), compression


def detect_file_format(path: PathLike, formats: Mapping[str, str] = TEXT_FORMATS) -> str:
    """The format of a file by its name; a named pipe without an ending is read as .txt.

    The ending "*" in `formats` matches all others.
    """
    ending, _ = split_endings(path)
    if ending in formats:
        return formats[ending]
    if "*" in formats:
        return formats["*"]
    if ".txt" in formats and Path(path).is_fifo():
        return formats[".txt"]
    raise InputError(
        f"{path}: files ending in {ending!r} are not supported"
        if ending
        else f"{path}: the file name has no ending that shows its format",
        fix=f"convert it, or rename it if only its ending is wrong: {' '.join(formats)} "
        f"(each may be followed by {' '.join(COMPRESSED_ENDINGS)})"
        + (", or pass plain text on standard input (-)" if formats is TEXT_FORMATS else ""),
    )


def find_files(
    sources: PathLike | Iterable[PathLike], formats: Mapping[str, str] = TEXT_FORMATS
) -> list[Path]:
    """The files that paths, folders and globs name, in a fixed order.

    A folder stands for its files at any depth, sorted, without hidden files and other endings.
    A file that is named or matched by a glob must have an ending of `formats`.
    """
    listed = [sources] if isinstance(sources, str | os.PathLike) else sources
    found: list[Path] = []
    for source in listed:
        try:
            for path in match_paths(os.fspath(source)):
                found += _list_files(path, formats)
        except OSError as error:  # a folder without permission, a name that is too long
            raise InputError(
                f"{str(source)[:200]}: {error.strerror}", fix="check the path and its permissions"
            ) from error
    return found


def match_paths(source: str) -> list[Path]:
    """The files and folders that a path or a glob names; it is an error if there are none."""
    source = os.path.expanduser(source)  # noqa: PTH111 - Path would remove "./" from a glob
    path = Path(source)
    if path.exists():
        return [path]
    if not glob.has_magic(source):
        raise _missing_file_error(source)
    matched = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 - Path.glob rejects absolute patterns
    if not matched:
        raise InputError(
            f"{source}: no file matches", fix="check the pattern; ** matches folders at any depth"
        )
    return [Path(match) for match in matched]


def _missing_file_error(source: str) -> InputError:
    fix = f"check the spelling; relative paths are relative to {Path.cwd()}"
    if close := get_close_matches(source, list_siblings(source), 1, cutoff=0.7):
        fix = f"did you mean {close[0]}?"
    return InputError(f"{source}: no such file or folder", fix=fix)


def _check_not_model(path: Path) -> None:
    """Raise if a folder given as data contains a model, whose files are not data."""
    inside = [path] if is_model_folder(path) else list_model_folders(path, depth=1)
    if inside:
        what = "is a model" if inside[0] == path else f"contains models, such as {inside[0].name}"
        raise InputError(
            f"{path} {what}, not data", fix="give files or folders with data, apart from models"
        )


def _list_files(path: Path, formats: Mapping[str, str]) -> list[Path]:
    if not path.is_dir():
        detect_file_format(path, formats)
        return [path]
    _check_not_model(path)
    inside = [one for one in _walk_folder(path, above=()) if split_endings(one)[0] in formats]
    if not inside:
        raise InputError(
            f"{path}: no file in this folder ends in {' '.join(formats)}",
            fix=f"pass such files, plain or compressed ({' '.join(COMPRESSED_ENDINGS)})",
        )
    return inside


def count_other_files(sources: Iterable[object], formats: Mapping[str, str]) -> dict[str, int]:
    """Files in folders that `find_files` leaves out: how many have each ending.

    Hidden files, and sources that are no paths of folders or do not exist, are not counted.
    """
    counts: Counter[str] = Counter()
    for source in sources:
        if not isinstance(source, str | os.PathLike) or source == "-":
            continue
        with suppress(InputError, OSError):
            for folder in filter(Path.is_dir, match_paths(os.fspath(source))):
                for path in _walk_folder(folder, above=()):
                    counts[split_endings(path)[0]] += 1
    return {ending: count for ending, count in sorted(counts.items()) if ending not in formats}


def _walk_folder(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """The files of a folder, at any depth; hidden ones are left out."""
    here = folder.resolve()
    if here in above:  # a link to a parent folder
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk_folder(path, (*above, here))
        else:
            yield path


class Decoder(Protocol):
    """The common interface of zlib, bz2, lzma and zstandard decoders."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def decompress(self) -> Callable[..., bytes]: ...


class Compression(NamedTuple):
    """A compression format: its name, its decoder and the arguments of `decompress`."""

    name: str
    make_decoder: Callable[[], Any]
    options: Mapping[str, int] = {}


def _make_zstd_decoder() -> Decoder:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("reading .zst", extra="zstd") from error
    # `zstd --long=31`, used for large public corpora, has a window of two gigabytes.
    decoder: Decoder = zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
    return decoder


COMPRESSIONS: Mapping[str, Compression] = {
    ".gz": Compression("gzip", lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)),
    ".xz": Compression(
        "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), {"max_length": MAX_OUTPUT_BYTES}
    ),
    ".bz2": Compression("bzip2", bz2.BZ2Decompressor, {"max_length": MAX_OUTPUT_BYTES}),
    ".zst": Compression("zstd", _make_zstd_decoder),
}


def open_binary(path: PathLike) -> BinaryIO:
    """Open a file for reading bytes, decompressed by its ending; broken data raise `OSError`."""
    try:
        raw = open(path, "rb")  # noqa: PTH123, SIM115 - the caller closes it
    except OSError as error:
        raise InputError(
            f"{path}: cannot open the file: {error.strerror}",
            fix="check the path and its permissions",
        ) from error
    _, compression = split_endings(path)
    if not compression:
        return raw
    return io.BufferedReader(DecompressedFile(raw, COMPRESSIONS[compression]), buffer_size=2**16)


def peek_stdin() -> bytes:
    """The first bytes of standard input, which are read again; it waits until there are some."""
    stream = sys.stdin.buffer
    if isinstance(stream, io.BufferedReader):
        return stream.peek()
    at = stream.tell()  # a stream in memory
    start = stream.read(PEEK_BYTES)
    stream.seek(at)
    return start


def open_text(path: PathLike) -> io.TextIOWrapper:
    """Open a file as UTF-8 text, decompressed, without a byte order mark.

    Broken data and bytes that are not UTF-8 raise an `InputError` with the line number.
    """
    return _TextFile(path)


class DecompressedFile(io.RawIOBase):
    """The decompressed bytes of a file of one or more compressed streams.

    The standard library ignores invalid data after the first bzip2 or xz stream, and zstandard
    accepts truncated files. Here both are errors: text that cannot be read is never skipped
    silently.
    """

    def __init__(self, raw: BinaryIO, compression: Compression) -> None:
        self._raw = raw
        self._compression = compression
        self._decoder: Decoder | None = None  # None between two streams
        self._input = b""
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
        """Decode some more bytes; False at the end of the file."""
        if self._decoder is None:
            data = self._read_compressed()
            compressed = data.lstrip(b"\0")  # xz and tape archives pad with zeros
            if not compressed:
                return bool(data)
            self._decoder = self._compression.make_decoder()
        elif getattr(self._decoder, "needs_input", True):
            compressed = self._read_compressed()
            if not compressed:
                raise OSError(f"the {self._compression.name} data is truncated")
        else:
            compressed = b""
        self._ready = memoryview(self._decode(self._decoder, compressed))
        if self._decoder.eof:
            self._input, self._decoder = self._decoder.unused_data, None
        return True

    def _read_compressed(self) -> bytes:
        compressed, self._input = self._input or self._raw.read(INPUT_BYTES), b""
        return compressed

    def _decode(self, decoder: Decoder, compressed: bytes) -> bytes:
        try:
            return decoder.decompress(compressed, **self._compression.options)
        except MemoryError:
            raise
        except Exception as error:  # each library has its own exception, one of them optional
            raise OSError(f"the {self._compression.name} data is broken ({error})") from error


class UnreadableFileError(InputError):
    """The rest of the file cannot be read."""


class TextLines(Iterator[str]):
    """The lines of a stream as text, with their line ends; `number` counts them from 1.

    A line that is not text raises `InputError`, and the next call continues after it; an error of
    the stream raises `UnreadableFileError`.
    """

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self._stream = stream
        self._ahead: deque[bytes | UnreadableFileError] = deque()  # read by `peek`
        self.file = file
        self.number = 0

    def peek(self) -> tuple[list[str], bool]:
        """The first lines, which are read again, and whether these are all of the file.

        Lines that are not UTF-8 are left out.
        """
        found: list[str] = []
        size = 0
        while len(self._ahead) < PEEK_LINES and size < PEEK_BYTES:
            try:
                self._ahead.append(self._read_line(self.number + len(self._ahead) + 1))
            except UnreadableFileError as error:
                self._ahead.append(error)
            line = self._ahead[-1]
            if not line or isinstance(line, UnreadableFileError):
                return found, True
            size += len(line)
            with suppress(UnicodeDecodeError):
                found.append(line.removeprefix(codecs.BOM_UTF8).decode())
        return found, False

    def _read_line(self, number: int) -> bytes:
        try:
            return self._stream.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise UnreadableFileError(
                f"{self.file}:{number}: {error}", fix="download or compress the file again"
            ) from error

    def __next__(self) -> str:
        line = self._ahead.popleft() if self._ahead else self._read_line(self.number + 1)
        if isinstance(line, UnreadableFileError):
            raise line
        self.number += 1
        if self.number == 1:
            line = self._check_first(line)
        if not line:
            raise StopIteration
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise UnreadableFileError(
                f"{self.file}:{self.number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB",
                fix="split it, one paragraph per line",
            )
        return self._decode(line)

    def _check_first(self, line: bytes) -> bytes:
        for magic, (what, fix) in NOT_TEXT.items():
            if line.startswith(magic):
                raise UnreadableFileError(f"{self.file}:1: this is {what}, not UTF-8 text", fix=fix)
        if b"\0" in line:
            raise UnreadableFileError(
                f"{self.file}:1: this is a binary file (it contains NUL bytes), not UTF-8 text",
                fix="leave it out, or extract its text first",
            )
        return line.removeprefix(codecs.BOM_UTF8)

    def _decode(self, line: bytes) -> str:
        if b"\0" in line:
            raise InputError(
                f"{self.file}:{self.number}: the line contains a NUL byte",
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


class _TextFile(io.TextIOWrapper):
    """A text file whose errors name the file and the line."""

    def __init__(self, path: PathLike) -> None:
        super().__init__(open_binary(path), encoding="utf-8-sig")
        self._path = path

    def read(self, size: int | None = -1) -> str:
        try:
            return super().read(size)
        except (UnicodeDecodeError, OSError) as error:
            raise self._locate_error(error) from error

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        try:
            return super().readline(size)
        except (UnicodeDecodeError, OSError) as error:
            raise self._locate_error(error) from error

    def _locate_error(self, error: Exception) -> InputError:
        """The same error with its line number, found by reading the file again line by line."""
        with open_binary(self._path) as stream:
            try:
                deque(TextLines(stream, os.fspath(self._path)), maxlen=0)
            except InputError as located:
                return located
        return InputError(
            f"{self._path}: {error}", fix="read it again: it has changed in the meantime"
        )
