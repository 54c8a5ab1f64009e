"""Sources of labelled data as records: rows of tables, values of JSON, items of a data set."""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from cloze.data.files import find, kind
from cloze.data.labelled.examples import Origin
from cloze.data.labelled.pipes import Pipe
from cloze.data.readers import (
    Numbered,
    csv_fields,
    json_lines,
    parquet_rows,
    ragged,
    tsv_fields,
    whole_file,
)
from cloze.data.streams import OnError, Source, check_rows, is_stream, listed, reporter, sift
from cloze.data.unpack import Lines, UnreadableError, open_bytes, open_text
from cloze.errors import InputError

LARGEST = 2**30  # characters of a JSON file, which is in memory as a whole

# Endings and how they are read, for `cloze.data.files`.
JSON: Mapping[str, str] = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
TABLES: Mapping[str, str] = {**JSON, ".csv": "csv", ".tsv": "tsv", ".txt": "tsv"}

Part: TypeAlias = Path | Pipe | Iterable[Any]  # one file, or an iterable of mappings
T = TypeVar("T")


class Record(NamedTuple):
    """A tuple of fields, or a value of JSON, and where it stood."""

    value: Any
    file: str
    line: int  # from 1; in parquet files, data sets and arrays the number of the row

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def origin(self, name: object = None) -> Origin:
        return Origin(file=self.file, line=self.line, id=None if name is None else str(name))


def read_each(
    sources: Source | list[Source],
    kinds: Mapping[str, str],
    read: Callable[[Part], Iterator[T | InputError]],
    on_error: OnError,
) -> Iterator[T]:
    """What `read` makes of every part of every source, in order, when it is asked for.

    A missing file is noticed at once, not when its turn comes.
    """
    report = reporter(on_error)
    streams: list[Iterator[T | InputError]] = []
    for source in sources_of(sources):
        try:
            parts = parts_of(source, kinds)
        except InputError as error:
            report(error)
        else:
            streams += [whole_file(read(part), name_of(part)) for part in parts]
    return sift(chain.from_iterable(streams), report)


def sources_of(data: Source | list[Source]) -> list[Any]:
    """One source, or several, as a list; a list of rows is one."""
    rows = isinstance(data, list | tuple) and bool(data) and isinstance(data[0], Mapping)
    return [data] if rows else listed(data)


def parts_of(source: Source, kinds: Mapping[str, str]) -> list[Part]:
    """The files a source stands for, or the rows it is."""
    if not isinstance(source, str | PathLike):
        return [check_rows(source)]
    if is_stream(source):
        return [Pipe(source)]
    return [Pipe(path) if path.is_fifo() else path for path in find(source, kinds)]


def name_of(part: Part) -> str:
    """What errors call it."""
    if isinstance(part, Pipe):
        return part.name
    return str(part) if isinstance(part, Path) else f"<{type(part).__name__}>"


def kind_of(part: Path | Pipe, kinds: Mapping[str, str]) -> str:
    """How to read it."""
    return part.kind(kinds) if isinstance(part, Pipe) else kind(part, kinds)


def opened(part: Path | Pipe) -> AbstractContextManager[BinaryIO]:
    """Its bytes."""
    return part.open() if isinstance(part, Pipe) else open_bytes(part)


def records(part: Part, kinds: Mapping[str, str]) -> Iterator[Record | InputError]:
    """The records of one part, a row that cannot be read as what is wrong with it."""
    name = name_of(part)
    for found in _numbered(part, kinds):
        yield found if isinstance(found, InputError) else Record(found[1], name, found[0])


def mappings(part: Part, kinds: Mapping[str, str]) -> Iterator[Record | InputError]:
    """The same, the fields of csv and tsv under the names in their first row."""
    names: tuple[str, ...] = ()
    for record in records(part, kinds):
        if isinstance(record, InputError) or not isinstance(record.value, tuple):
            yield record
        elif not names:
            names = record.value
        elif len(record.value) != len(names):
            yield ragged(record.value, names, "the header", record.where)
        else:
            yield record._replace(value=dict(zip(names, record.value, strict=True)))


def class_names(part: Part, column: str) -> list[str] | None:
    """The names of classes that a `datasets` object writes as numbers."""
    features = getattr(part, "features", None)
    feature = features.get(column) if isinstance(features, Mapping) else None
    return getattr(getattr(feature, "feature", feature), "names", None)


def _numbered(part: Part, kinds: Mapping[str, str]) -> Iterable[Numbered | InputError]:
    if not isinstance(part, Path | Pipe):
        return enumerate(part, 1)
    how = kind_of(part, kinds)
    if how == "json":
        return _json(part)
    if how == "parquet":  # read from its end: that a pipe has none will be told
        return parquet_rows(Path(name_of(part)))
    return _lines(part, how)


def _lines(part: Path | Pipe, how: str) -> Iterator[Numbered | InputError]:
    with opened(part) as stream:
        lines = Lines(stream, name_of(part))
        if how == "jsonl":
            yield from json_lines(lines)
            return
        for found in csv_fields(lines) if how == "csv" else tsv_fields(lines):
            yield found if isinstance(found, InputError) else (found[0], tuple(found[1]))


def _json(part: Path | Pipe) -> Iterator[Numbered | InputError]:
    """The items of an array (SQuAD's stands under "data"), or JSON lines under this ending."""
    name, text = name_of(part), _text(part)
    if not text.strip():
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") != "Extra data":
            raise UnreadableError(
                f"{name}:{getattr(error, 'lineno', 1)}: broken JSON: {error}",
                fix="fetch or write the file again",
            ) from error
        yield from json_lines(Lines(io.BytesIO(text.encode()), name))
    else:
        if isinstance(value, Mapping) and isinstance(value.get("data"), list):
            value = value["data"]
        yield from enumerate(value if isinstance(value, list) else [value], 1)


def _text(part: Path | Pipe) -> str:
    """All of it; what came by a pipe cannot be read again to tell the line of an error."""
    name, whole = name_of(part), io.BytesIO()
    if isinstance(part, Pipe):
        with part.open() as stream:
            size = whole.write(stream.read(LARGEST + 1))
        whole.seek(0)
        text = "".join(Lines(whole, name)) if size <= LARGEST else ""
    else:
        with open_text(part) as decoded:
            text = decoded.read(LARGEST + 1)
        size = len(text)
    if size > LARGEST:
        raise UnreadableError(
            f"{name}: the file is larger than {LARGEST >> 20} MiB",
            fix="write it as JSON lines (jq -c '.[]'), in a name that ends in .jsonl",
        )
    return text
