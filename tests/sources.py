"""Compressed and plain text files for tests, and functions that read them."""

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from cloze.data.sources import read_rows
from cloze.errors import InputError

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def parquet(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def texts(source: object, **options: object) -> list[str]:
    return [row.text for row in read_rows(source, **options)]


def survey(source: object, **options: object) -> tuple[list[str], list[str]]:
    """The texts that could be read, and what was said about the rest."""
    errors: list[InputError] = []
    return texts(source, on_error=errors.append, **options), [error.problem for error in errors]
