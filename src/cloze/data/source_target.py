"""Pairs of a source and a target from tables, aligned files or running text.

Text and summary, sentence and translation: as columns of a table, as two aligned files or lists,
or, for summaries, made from running text whose first paragraphs are the summaries of the others.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cloze.data.input_files import split_endings
from cloze.data.labelled.columns import find_column, format_names
from cloze.data.labelled.records import (
    JSON_FORMATS,
    DataInput,
    Record,
    read_inputs,
    read_mappings,
    read_records,
)
from cloze.data.objects import is_table, open_rows
from cloze.data.parallel_text import ParallelText, load_parallel_text
from cloze.data.sources import Source, as_list, read_rows
from cloze.errors import InputError

TABLES = {**JSON_FORMATS, ".csv": "csv", ".tsv": "tsv"}
# Names of the columns, by task: those that are found first are used.
COLUMNS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "summarize": (
        ("text", "article", "document", "body", "content", "source", "paragraphs", "dialogue"),
        ("summary", "highlights", "target", "abstract", "lead"),
    ),
    "translate": (
        ("source", "src", "text", "sentence", "source_text"),
        ("target", "tgt", "translation", "target_text"),
    ),
}
_SIDES = 2


def load_pairs(
    data: Source | Iterable[Any],
    task: str = "translate",
    *,
    text_column: str | int | None = None,
    target_column: str | int | None = None,
    lead_as_summary: bool = False,
    name: str = "the data",
) -> ParallelText:
    """Load the pairs of a source and its target.

    Args:
        data: tables with a column for each (JSON lines, JSON, csv, tsv, Parquet), a data frame, a
            `datasets` object or mappings; or two files, or lists, whose lines are aligned.
        task: translate or summarize, which decides about the names of the columns.
        text_column: name or 1-based number of the source's column (default: auto-detected).
        target_column: the same for the target.
        lead_as_summary: the data are running text, whose documents become pairs: see
            `read_lead_pairs`.
        name: of the data in errors.
    """
    listed = as_list(data)
    if lead_as_summary:
        pairs = [(one["text"], one["summary"]) for one in read_lead_pairs(listed)]
        return _make_pairs(pairs, ", ".join(map(_name, listed)))
    if are_tables(listed):
        columns = tuple(
            None if name is None else str(name) for name in (text_column, target_column)
        )
        pairs = list(_read_table_pairs(listed, task, columns))
        return _make_pairs(pairs, ", ".join(map(_name, listed)))
    check_sides(listed, task, name)
    if text_column is not None or target_column is not None:
        raise InputError(
            "a column is named, but the data are two files or lists of lines",
            fix="leave the column out, or give a table",
        )
    return load_parallel_text(*listed)


def are_tables(listed: Sequence[Any]) -> bool:
    """Whether the sources have columns; alone, standard input has."""
    is_stdin = len(listed) == 1 and isinstance(listed[0], str) and listed[0] == "-"
    return is_stdin or (bool(listed) and all(map(_is_tabular, listed)))


def check_sides(listed: Sequence[Any], task: str, name: str = "the data") -> None:
    """Raise unless the sources are two, or have columns."""
    if len(listed) != _SIDES and not are_tables(listed):
        count = f"{len(listed)} file{'s' * (len(listed) != 1)} of plain lines"
        flag = f" (--{name} SOURCE TARGET)" if name in ("train", "dev") else ""
        raise InputError(
            f"{name} has {count}, but {task} needs two files, source and target",
            fix=f"give two files whose lines are aligned{flag}, or a table (.jsonl, .csv, .tsv, "
            f".parquet) with the columns {COLUMNS[task][0][0]} and {COLUMNS[task][1][0]}",
        )


def read_lead_pairs(
    sources: Source | Iterable[Any], *, min_words: int = 8
) -> Iterator[dict[str, str]]:
    """Pairs of a text and its summary, without labels: the body and the lead of each document.

    Of a document of running text (a title, then a paragraph on each line; a blank line ends it) the
    first paragraph is the summary of the others, as in an encyclopedia. Documents without a body,
    and those whose lead has fewer than `min_words` words, are left out.
    """
    title, paragraphs = "", list[str]()
    for row in [*read_rows(sources), None]:
        line = row.text.strip() if row is not None else ""
        if not line:
            if len(paragraphs) > 1 and len(paragraphs[0].split()) >= min_words:
                lead, *body = paragraphs
                yield {"title": title, "text": "\n".join(body), "summary": lead}
            title, paragraphs = "", []
        elif not title:
            title = line
        else:
            paragraphs.append(line)


def _is_tabular(one: object) -> bool:
    """Whether a source has columns: a table file, a data frame, mappings."""
    if isinstance(one, str | os.PathLike):
        return split_endings(one)[0] in TABLES
    if is_table(one):
        return True
    if isinstance(one, Sequence):
        return bool(one) and isinstance(one[0], Mapping)
    return isinstance(one, Iterable)  # rows of a stream


def _name(source: object) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else f"<{type(source).__name__}>"


def _make_pairs(pairs: Sequence[tuple[str, str]], where: str) -> ParallelText:
    filled = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    if not filled:
        raise InputError(
            f"there are no pairs of a source and a target in {where}",
            fix="check that the columns are those of the texts, and not empty",
        )
    return ParallelText(
        source=[source for source, _ in filled],
        target=[target for _, target in filled],
        num_blank=len(pairs) - len(filled),
    )


def _read_table_pairs(
    sources: list[Any], task: str, columns: Sequence[str | None]
) -> Iterator[tuple[str, str]]:
    has_header = any(one is None or not one.isdecimal() for one in columns)

    def read(part: DataInput) -> Iterator[tuple[str, str] | InputError]:
        found: Sequence[str] | None = None
        for record in _read_rows(part, has_header=has_header):
            if isinstance(record, InputError):
                yield record
            elif not isinstance(record.value, Mapping):
                yield InputError(
                    f"{record.where}: a row is a {type(record.value).__name__}, not an object with "
                    "columns",
                    fix=_describe_columns(task),
                )
            else:
                if found is None or not {*found} <= record.value.keys():
                    found = _find_columns(list(record.value), task, columns, record)
                yield _make_pair(record, found, task)

    inputs: list[Any] = [
        one if isinstance(one, str | os.PathLike) else open_rows(one) for one in sources
    ]
    yield from read_inputs(inputs, TABLES, read, "raise")


def _read_rows(part: DataInput, *, has_header: bool) -> Iterator[Record | InputError]:
    """The rows as mappings; without a header the columns of a csv or tsv are numbered from 1."""
    if has_header:
        yield from read_mappings(part, TABLES)
        return
    for record in read_records(part, TABLES):
        if isinstance(record, InputError) or not isinstance(record.value, tuple):
            yield record
        else:
            values = {str(n): value for n, value in enumerate(record.value, 1)}
            yield record._replace(value=values)


def _make_pair(record: Record, columns: Sequence[str], task: str) -> tuple[str, str] | InputError:
    values = []
    for name in columns:
        value = record.value[name]
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = "\n".join(value)  # sentences, such as the highlights of some data sets
        if value is None:
            value = ""  # counted as blank
        if not isinstance(value, str):
            return InputError(
                f"{record.where}: {name} is a {type(value).__name__}, not a text",
                fix=_describe_columns(task),
            )
        values.append(value)
    return values[0], values[1]


def _find_columns(
    names: list[str], task: str, requested: Sequence[str | None], record: Record
) -> tuple[str, str]:
    found: list[str] = []
    for known, request, option in zip(
        COLUMNS[task], requested, ("text_column", "target_column"), strict=True
    ):
        column = find_column(names, request, record.where)
        if column is None:
            plain = {str(name).strip().lower(): name for name in names}
            column = next((plain[one] for one in known if one in plain), None)
        if column is None or column in found:
            raise InputError(
                f"{record.where}: no column of the {'target' if found else 'source'} found; the "
                f"columns are {format_names(names)}",
                fix=f"name it with --{option.replace('_', '-')} ({option}= in Python); "
                + _describe_columns(task),
            )
        found.append(column)
    return found[0], found[1]


def _describe_columns(task: str) -> str:
    source, target = COLUMNS[task]
    return f"known names are {', '.join(source)}; {', '.join(target)}"
