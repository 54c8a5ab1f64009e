"""Sources of labelled data as records: rows of tables, values of JSON, items of a data set."""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from cloze.data.files import find, kind
from cloze.data.labelled.examples import Origin
from cloze.data.readers import (
    Numbered,
    csv_fields,
    json_lines,
    parquet_rows,
    ragged,
    tsv_fields,
    whole_file,
)
from cloze.data.streams import OnError, Source, check_rows, listed, reporter, sift
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

Part: TypeAlias = Path | Iterable[Any]  # one file, or an iterable of mappings
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
    for source in listed(sources):
        try:
            parts = parts_of(source, kinds)
        except InputError as error:
            report(error)
        else:
            streams += [whole_file(read(part), name_of(part)) for part in parts]
    return sift(chain.from_iterable(streams), report)


def parts_of(source: Source, kinds: Mapping[str, str]) -> list[Part]:
    """The files a source stands for, or the rows it is."""
    if isinstance(source, str | PathLike):
        return list(find(source, kinds))
    return [check_rows(source)]


def name_of(part: Part) -> str:
    """What errors call it."""
    return str(part) if isinstance(part, Path) else f"<{type(part).__name__}>"


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
    if not isinstance(part, Path):
        return enumerate(part, 1)
    how = kind(part, kinds)
    if how == "json":
        return _json(part)
    return parquet_rows(part) if how == "parquet" else _lines(part, how)


def _lines(path: Path, how: str) -> Iterator[Numbered | InputError]:
    with open_bytes(path) as stream:
        lines = Lines(stream, str(path))
        if how == "jsonl":
            yield from json_lines(lines)
            return
        for found in csv_fields(lines) if how == "csv" else tsv_fields(lines):
            yield found if isinstance(found, InputError) else (found[0], tuple(found[1]))


def _json(path: Path) -> Iterator[Numbered | InputError]:
    """The items of an array (SQuAD's stands under "data"), or JSON lines under this ending."""
    with open_text(path) as stream:
        text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise UnreadableError(
            f"{path}: the file is larger than {LARGEST >> 20} MiB",
            fix="write it as JSON lines (jq -c '.[]'), in a name that ends in .jsonl",
        )
    if not text.strip():
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") != "Extra data":
            raise UnreadableError(
                f"{path}:{getattr(error, 'lineno', 1)}: broken JSON: {error}",
                fix="fetch or write the file again",
            ) from error
        yield from json_lines(Lines(io.BytesIO(text.encode()), str(path)))
    else:
        if isinstance(value, Mapping) and isinstance(value.get("data"), list):
            value = value["data"]
        yield from enumerate(value if isinstance(value, list) else [value], 1)
