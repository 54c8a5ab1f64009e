"""Write results to .jsonl, .parquet or .npy files as they are computed.

The file appears under its name when it is complete; after a failure there is no file.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy

from cloze.errors import InputError, MissingExtraError
from cloze.files import atomic_file

# The columns of parquet files: a type of Arrow, [type] for a list, {name: type} for a structure.
_SPAN = {"text": "string", "start": "int64", "end": "int64"}
_STATUS = {"error": "string", "truncated_chars": "int64"}
COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "embed": {"text": "string", "embedding": ["float"], **_STATUS},
    "embed images": {"image": "string", "embedding": ["float"], **_STATUS},
    "embed tokens": {
        "text": "string",
        "tokens": ["string"],
        "starts": ["int32"],
        "ends": ["int32"],
        "words": ["int32"],
        "embeddings": [["float"]],
        **_STATUS,
    },
    "classify": {
        "text": "string",
        "pair": "string",
        "predicted": ["string"],
        "labels": [{"label": "string", "score": "double"}],
        **_STATUS,
    },
    "classify images": {
        "image": "string",
        "labels": [{"label": "string", "score": "double"}],
        **_STATUS,
    },
    "tag": {
        "text": "string",
        "spans": [{**_SPAN, "label": "string", "score": "double"}],
        "untagged": "int64",
        **_STATUS,
    },
    "answer": {
        "question": "string",
        "context": "string",
        "answers": [{**_SPAN, "logit": "double", "probability": "double"}],
        **_STATUS,
    },
}

_VECTORS = ("embed", "embed images")  # kinds with one vector for each input


class Record(Protocol):
    """The result of an input, or its error."""

    def to_dict(self) -> dict[str, Any]: ...


RecordWriter = Callable[[Sequence[Any]], None]  # writes records in order


def list_formats(kind: str) -> tuple[str, ...]:
    """The endings of the files that can hold results of a kind (a key of `COLUMNS`)."""
    return (".npy", ".jsonl", ".parquet") if kind in _VECTORS else (".jsonl", ".parquet")


def check_result_format(path: Path, kind: str) -> None:
    """Raise if the ending of a file is not one of the formats of its results."""
    if kind == "embed tokens" and path.suffix == ".npy":
        raise InputError(
            "an .npy file contains one array, but texts have different numbers of tokens",
            fix="write token embeddings to .jsonl or .parquet",
        )
    if path.suffix not in list_formats(kind):
        raise InputError(
            f"{path.name} does not end in a format for the results of {kind}",
            fix=f"use one of {', '.join(list_formats(kind))}; a name without an ending is a folder",
        )


@contextmanager
def open_result_file(path: Path, kind: str) -> Iterator[RecordWriter]:
    """Open a writer of records of a kind (a key of `COLUMNS`); the file appears if none fails."""
    check_result_format(path, kind)
    open_writer = {
        ".npy": _open_npy_writer,
        ".jsonl": _open_jsonl_writer,
        ".parquet": _open_parquet_writer,
    }[path.suffix]
    with atomic_file(path) as file, open_writer(file, kind) as write:
        yield write


@contextmanager
def _open_npy_writer(file: IO[bytes], _: str) -> Iterator[RecordWriter]:
    """One float32 array; a text with an error is a row of NaN."""
    rows, size = 0, 0  # number of rows, and the size of one, known from the first embedding on

    def write(records: Sequence[Any]) -> None:
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
def _open_jsonl_writer(file: IO[bytes], _: str) -> Iterator[RecordWriter]:
    """One JSON object per line."""

    def write(records: Sequence[Any]) -> None:
        for record in records:
            found = record.to_dict()
            try:
                line = json.dumps(found, ensure_ascii=False, allow_nan=False)
            except ValueError:
                text = str(next(iter(found.values()), ""))[:60]
                raise InputError(
                    f"the result of {text!r} contains NaN or infinite values",
                    fix="check the weights of the model, or use float32",
                ) from None
            file.write(line.encode() + b"\n")

    yield write


@contextmanager
def _open_parquet_writer(file: IO[bytes], kind: str) -> Iterator[RecordWriter]:
    """The columns of the kind; what a record does not have is null."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("writing parquet", extra="parquet") from None
    schema = pa.schema({name: _to_arrow(pa, one) for name, one in COLUMNS[kind].items()})
    # a dictionary of distinct numbers would only cost time
    plain = [name for name in schema.names if not name.startswith("embedding")]
    with parquet.ParquetWriter(file, schema, use_dictionary=plain) as writer:

        def write(records: Sequence[Any]) -> None:
            if kind in _VECTORS:
                writer.write_table(_make_vector_table(pa, schema, records))
                return
            rows = [
                one.to_columns() if kind == "embed tokens" else one.to_dict() for one in records
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))

        yield write


def _make_vector_table(pa: Any, schema: Any, records: Sequence[Any]) -> Any:  # noqa: ANN401
    """A table whose embeddings are not converted number by number."""
    vectors = [one.vectors for one in records]
    sizes = [0 if one is None else len(one) for one in vectors]
    values = np.concatenate([np.zeros(0, np.float32), *(v for v in vectors if v is not None)])
    columns = {
        **_get_names(schema, records),
        "embedding": pa.ListArray.from_arrays(
            pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32()),
            pa.array(values, pa.float32()),
            mask=pa.array([one is None for one in vectors], pa.bool_()),
        ),
        "error": [one.error and one.error.problem for one in records],
        "truncated_chars": [None if one.error else one.truncated_chars for one in records],
    }
    return pa.table(columns, schema=schema)


def _get_names(schema: Any, records: Sequence[Any]) -> dict[str, list[str | None]]:  # noqa: ANN401
    name = "image" if "image" in schema.names else "text"
    return {name: [getattr(one, name) for one in records]}


def _to_arrow(pa: Any, spec: Any) -> Any:  # noqa: ANN401
    if isinstance(spec, list):
        return pa.list_(_to_arrow(pa, spec[0]))
    if isinstance(spec, Mapping):
        return pa.struct([(name, _to_arrow(pa, one)) for name, one in spec.items()])
    return pa.type_for_alias(spec)
