"""Documents to index: an id, a text, perhaps a title, and metadata, from any source.

A row of a table (csv, tsv, JSON lines, Parquet, a data frame …) is a document, whose other columns
are its metadata. Of plain text a file is a document, or each section between blank lines, or each
line. An HTML or PDF file is a document.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cloze.config import one_of
from cloze.data.html_documents import read_page
from cloze.data.input_files import STDIN, TextLines, count_other_files, detect_file_format
from cloze.data.labelled.columns import find_column
from cloze.data.labelled.records import (
    JSON_FORMATS,
    DataInput,
    Pipe,
    Record,
    format_input_name,
    open_input,
    read_inputs,
    read_mappings,
)
from cloze.data.objects import to_plain
from cloze.data.pdf_documents import read_pdf
from cloze.data.readers import choose_text_column, iterate_lines, parse_text
from cloze.data.sources import OnError, Sources
from cloze.errors import InputError

UNITS = ("file", "section", "line")
FORMATS: Mapping[str, str] = {
    **dict.fromkeys((".txt", ".text", ".md"), "lines"),
    **JSON_FORMATS,
    ".csv": "csv",
    ".tsv": "tsv",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
}
_IDS = ("id", "_id", "doc_id", "docid", "document_id", "docno", "uuid", "key", "url")
_TITLES = ("title", "headline", "heading", "subject", "name")
_MAX_ID = 1024  # characters
_MAX_METADATA = 1 << 20  # characters of JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text with an id that is unique in its collection."""

    id: str
    text: str
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)  # file and line, for messages


class DocumentColumns(NamedTuple):
    """The columns of a table: names or 1-based numbers; None: auto-detected."""

    id: str | int | None = None
    title: str | int | None = None
    text: str | int | None = None


def read_documents(
    sources: Sources,
    *,
    columns: DocumentColumns | None = None,
    unit: str | None = None,
    on_error: OnError = "raise",
) -> Iterator[Document]:
    """Read the documents of all sources lazily, in order.

    A document without an id gets one of its file and line: `notes/a.txt`, `notes/b.csv:7`.

    Args:
        sources: a path, folder, glob, or `-` for standard input; a data frame, a `datasets` object,
            an iterable of mappings or of texts; or a list of these. Strings in a list are paths.
        columns: columns of tables.
        unit: what a document of plain text is: file, section or line (default: file; of standard
            input line).
        on_error: "raise", or a function that is called with each error; reading then continues.
    """
    if unit is not None:
        one_of("unit", unit, UNITS)
    read = partial(_read_input, columns=columns or DocumentColumns(), unit=unit)
    found: Iterator[Document] = read_inputs(sources, FORMATS, read, on_error)  # type: ignore[arg-type]
    return _name_option(found) if on_error == "raise" else found


def count_left_out(sources: Iterable[object]) -> dict[str, int]:
    """Files in folders that `read_documents` does not read: how many have each ending."""
    return count_other_files(sources, FORMATS)


def _name_option(documents: Iterator[Document]) -> Iterator[Document]:
    """The same; an error says how to go on without what cannot be read."""
    try:
        yield from documents
    except InputError as error:
        fix = f"{error.fix}; or skip what cannot be read with --skip-bad (on_error= in Python)"
        raise type(error)(error.problem, fix=fix) from error


def _read_input(
    part: DataInput, columns: DocumentColumns, unit: str | None
) -> Iterator[Document | InputError]:
    if not isinstance(part, Path | Pipe):
        return _read_table(part, columns)
    if isinstance(part, Pipe):
        format_, unit = part.detect_format(FORMATS), unit or "line"
        has_columns = any(one is not None for one in columns)
        is_text = not has_columns and format_ not in ("json", "jsonl", "parquet")
    else:
        format_, unit = detect_file_format(part, FORMATS), unit or "file"
        is_text = format_ == "lines"
    if format_ in ("html", "pdf"):
        return _read_file(part, format_)
    return _read_text(part, unit) if is_text else _read_table(part, columns)


def _read_file(part: Path | Pipe, format_: str) -> Iterator[Document | InputError]:
    """An HTML or PDF file, which is one document."""
    name = format_input_name(part)
    metadata: dict[str, Any] = {}
    with open_input(part) as stream:
        try:
            if format_ == "pdf":
                title, text, metadata["pages"] = read_pdf(stream, name)
            else:
                title, text = read_page(stream, name)
        except OSError as error:  # compressed data that are damaged
            raise InputError(f"{name}: {error}", fix="download the file again") from error
    yield Document(
        id=check_id(name, name),
        text=parse_text(text, name),
        title=_check_title(title, name),
        metadata=metadata,
        where=name,
    )


def _read_text(part: Path | Pipe, unit: str) -> Iterator[Document | InputError]:
    """The documents of plain text."""
    name = format_input_name(part)
    lines: list[str] = []
    start = 1
    with open_input(part) as stream:
        source = TextLines(stream, name)
        for line in iterate_lines(source):
            if isinstance(line, InputError):
                yield line
                continue
            text = line.removesuffix("\n").removesuffix("\r")
            is_end = unit == "line" or (unit == "section" and not text.strip())
            if not lines:
                start = source.number
            if unit == "line" or not is_end:
                lines.append(text)
            if is_end and any(one.strip() for one in lines):
                yield _make_text(lines, name, start)
            lines = [] if is_end else lines
    if any(one.strip() for one in lines):
        id_ = name if unit == "file" and name != STDIN else f"{name}:{start}"
        yield _make_text(lines, name, start, id_)


def _make_text(
    lines: Iterable[str], file: str, start: int, id_: str | None = None
) -> Document | InputError:
    where = f"{file}:{start}"
    try:
        text = parse_text("\n".join(lines), where)
        return Document(id=check_id(id_ or where, where), text=text, where=where)
    except InputError as error:
        return error


def _read_table(part: DataInput, columns: DocumentColumns) -> Iterator[Document | InputError]:
    found: DocumentColumns | None = None
    for record in read_mappings(part, FORMATS):
        if isinstance(record, InputError):
            yield record
            continue
        try:
            if isinstance(record.value, str):
                where = str(record.line) if record.file.startswith("<") else record.where
                yield Document(id=where, text=parse_text(record.value, where), where=where)
                continue
            if not isinstance(record.value, Mapping):
                raise InputError(
                    f"{record.where}: {repr(record.value)[:40]} is not a document",
                    fix='write objects with columns: {"id": …, "title": …, "text": …}',
                )
            if found is None:
                found = _find_columns([str(name) for name in record.value], columns, record.where)
            yield _make_document(record, found)
        except InputError as error:
            yield error


def _find_columns(names: list[str], columns: DocumentColumns, where: str) -> DocumentColumns:
    def find(requested: str | int | None, known: Iterable[str]) -> str | None:
        if requested is not None:
            return find_column(names, str(requested), where)
        by_name = {name.strip().lower(): name for name in reversed(names)}
        return next((by_name[name] for name in known if name in by_name), None)

    id_, title = find(columns.id, _IDS), find(columns.title, _TITLES)
    free = [name for name in names if name not in (id_, title)]
    requested = None if columns.text is None else str(columns.text)
    text = choose_text_column(names if requested else free or names, requested, where)
    return DocumentColumns(id=id_, title=title if title != text else None, text=text)


def _make_document(record: Record, columns: DocumentColumns) -> Document:
    values: Mapping[str, Any] = {str(name): value for name, value in record.value.items()}
    where = record.where
    if columns.text not in values:
        raise InputError(f"{where}: the column {columns.text!r} is missing", fix="fix the row")
    id_ = values.get(str(columns.id)) if columns.id is not None else None
    if columns.id is None:
        id_ = str(record.line) if record.file.startswith("<") else where
    title = values.get(str(columns.title)) if columns.title is not None else None
    others = {name: one for name, one in values.items() if name not in columns}
    return Document(
        id=check_id(id_, f"{where}: column {columns.id!r}"),
        text=parse_text(values[str(columns.text)], f"{where}: column {columns.text!r}"),
        title=_check_title(title, f"{where}: column {columns.title!r}"),
        metadata=check_metadata(others, where),
        where=where,
    )


def check_id(value: object, where: str) -> str:
    """Check an id; whole numbers are accepted, too."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = parse_text(value, where)
    if not text.strip() or len(text) > _MAX_ID:
        raise InputError(
            f"{where}: the id has {len(text):,} characters",
            fix=f"use ids of 1 to {_MAX_ID:,} characters",
        )
    return text


def _check_title(value: object, where: str) -> str | None:
    if value is None or value == "":
        return None
    return parse_text(value if isinstance(value, str) else str(value), where)


def check_metadata(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values that JSON can represent; dates and other objects become texts."""
    plain = {name: _to_json_value(to_plain(one)) for name, one in values.items()}
    try:
        size = len(json.dumps(plain))
    except (ValueError, RecursionError):
        raise InputError(
            f"{where}: the metadata are nested too deeply", fix="flatten them"
        ) from None
    if size > _MAX_METADATA:
        raise InputError(
            f"{where}: the metadata have {size:,} characters, more than {_MAX_METADATA:,}",
            fix="leave out long columns, or name the text column",
        )
    return plain


def _to_json_value(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any value
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth < 8 and isinstance(value, Mapping):  # noqa: PLR2004
        return {str(name): _to_json_value(one, depth + 1) for name, one in value.items()}
    if depth < 8 and isinstance(value, list | tuple | set):  # noqa: PLR2004
        return [_to_json_value(one, depth + 1) for one in value]
    return str(value)
