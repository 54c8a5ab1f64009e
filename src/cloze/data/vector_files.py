"""Write embeddings to .npy, .jsonl or .parquet files as they are computed.

The file appears under its name when it is complete; after a failure there is no file.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cloze.errors import InputError, MissingExtraError
from cloze.files import atomic_file
from cloze.text.alignment import TokenAlignment

Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecord:
    """A text with its embedding or the embeddings of its tokens, or the error."""

    text: str | None  # None: the text could not be read
    vectors: Vectors | None = None  # d; t d with an encoding
    encoding: TokenAlignment | None = None
    error: InputError | None = None
    truncated_chars: int = 0  # characters left out by truncation

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the text: a line of a .jsonl file and of `--json`."""
        if self.vectors is None:
            return {"text": self.text, **self._status()}
        if self.encoding is None:
            return {"text": self.text, "embedding": self.vectors.tolist(), **self._status()}
        columns = (self.encoding.tokens, self.encoding.offsets, self.encoding.words, self.vectors)
        return {
            "text": self.text,
            "tokens": [
                {
                    "token": token,
                    "start": start,
                    "end": end,
                    "word": word,
                    "embedding": row.tolist(),
                }
                for token, (start, end), word, row in zip(*columns, strict=True)
            ],
            **self._status(),
        }

    def to_columns(self) -> dict[str, Any]:
        """The token embeddings as columns of a table."""
        if self.vectors is None or self.encoding is None:
            return {"text": self.text, **self._status()}
        starts, ends = zip(*self.encoding.offsets, strict=True)
        return {
            "text": self.text,
            "tokens": self.encoding.tokens,
            "starts": starts,
            "ends": ends,
            "words": self.encoding.words,
            "embeddings": self.vectors.tolist(),
            **self._status(),
        }

    def _status(self) -> dict[str, Any]:
        if self.error:
            return {"error": self.error.problem}
        return {"truncated_chars": self.truncated_chars}


class RecordWriter(Protocol):
    """Writes records in order."""

    def __call__(self, records: Sequence[EmbeddingRecord]) -> None: ...


VECTOR_FORMATS = (".npy", ".jsonl", ".parquet")


def check_vector_format(path: Path, *, by_token: bool) -> None:
    """Raise if the format does not support the embeddings."""
    if path.suffix not in VECTOR_FORMATS:
        raise InputError(
            f"{path.name} does not end in a format for embeddings",
            fix=f"use one of {', '.join(VECTOR_FORMATS)}",
        )
    if by_token and path.suffix == ".npy":
        raise InputError(
            "an .npy file contains one array, but texts have different numbers of tokens",
            fix="write token embeddings to .jsonl or .parquet",
        )


@contextmanager
def open_vector_file(path: Path, *, by_token: bool = False) -> Iterator[RecordWriter]:
    """Open a writer of records; the file appears if there is no error."""
    check_vector_format(path, by_token=by_token)
    open_writer = {
        ".npy": _open_npy_writer,
        ".jsonl": _open_jsonl_writer,
        ".parquet": _open_parquet_writer,
    }[path.suffix]
    with atomic_file(path) as file, open_writer(file, by_token) as write:
        yield write


@contextmanager
def _open_npy_writer(file: IO[bytes], _: bool) -> Iterator[RecordWriter]:
    """One float32 array; a text with an error is a row of NaN."""
    rows, size = 0, 0  # number of rows, and the size of one, known from the first embedding on

    def write(records: Sequence[EmbeddingRecord]) -> None:
        nonlocal rows, size
        for record in records:
            if record.vectors is not None:
                if not size:
                    size = len(record.vectors)
                    npy.write_array_header_1_0(file, _make_npy_header(0, size))
                    file.write(np.full(rows * size, np.nan, np.float32).tobytes())
                file.write(record.vectors.tobytes())
            elif size:
                file.write(np.full(size, np.nan, np.float32).tobytes())
            rows += 1

    yield write
    file.seek(0)  # numpy pads the header, so that the final number of rows fits
    npy.write_array_header_1_0(file, _make_npy_header(rows, size))


def _make_npy_header(rows: int, size: int) -> dict[str, Any]:
    return {"descr": "<f4", "fortran_order": False, "shape": (rows, size)}


@contextmanager
def _open_jsonl_writer(file: IO[bytes], _: bool) -> Iterator[RecordWriter]:
    """One JSON object per line."""

    def write(records: Sequence[EmbeddingRecord]) -> None:
        for record in records:
            try:
                line = json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False)
            except ValueError:
                raise InputError(
                    f"the embedding of {str(record.text)[:60]!r} contains NaN or infinite values",
                    fix="check the weights of the model, or use float32",
                ) from None
            file.write(line.encode() + b"\n")

    yield write


@contextmanager
def _open_parquet_writer(file: IO[bytes], by_token: bool) -> Iterator[RecordWriter]:
    """Columns text, embedding, error, truncated_chars; by token: tokens, starts, ends, words."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("writing parquet", extra="parquet") from None
    text, number, vector = pa.string(), pa.list_(pa.int32()), pa.list_(pa.float32())
    columns = {"embedding": vector}
    if by_token:
        columns = {
            "tokens": pa.list_(text),
            "starts": number,
            "ends": number,
            "words": number,
            "embeddings": pa.list_(vector),
        }
    schema = pa.schema({"text": text, **columns, "error": text, "truncated_chars": pa.int64()})
    with parquet.ParquetWriter(file, schema) as writer:

        def write(records: Sequence[EmbeddingRecord]) -> None:
            rows = [record.to_columns() if by_token else record.to_dict() for record in records]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))

        yield write
