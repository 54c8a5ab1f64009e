"""Detect the delimiter and the quoting of a table in a text file, from its first lines.

The rule: the first line has at least two columns, and all lines have equally many. The usual
delimiter of the file's ending is preferred.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

DELIMITERS = (",", "\t", ";", "|")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
MIN_COLUMNS = 2


class Dialect(NamedTuple):
    """The delimiter of the fields, and whether fields may be quoted (RFC 4180)."""

    delimiter: str
    quoted: bool

    def split(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """The fields of every record; an unclosed quote is an error, not a very long field."""
        if self.quoted:
            return csv.reader(lines, delimiter=self.delimiter, strict=True)
        # a generator would end at the error of a line
        return map(lambda line: line.rstrip("\r\n").split(self.delimiter), lines)  # noqa: C417


CSV, TSV = Dialect(",", quoted=True), Dialect("\t", quoted=False)
USUAL = {"csv": CSV, "tsv": TSV}  # by format


def detect_dialect(lines: Sequence[str], format_: str, *, complete: bool = True) -> Dialect:
    """The dialect of a csv or tsv file, from its first lines.

    The usual dialect of the format is taken if its delimiter occurs in the first line of a tsv, or
    gives all records of a csv equally many columns. Otherwise the delimiter is the one for which
    most records are as wide as the first; in a tsv for which all are, as its lines may be texts
    without any tab. In texts a space follows a comma, but in the first line of a table none
    follows the delimiter.

    Tab-separated fields are quoted only if that is certain: otherwise the numbers of columns
    differ, or all quotes enclose fields and either some are doubled inside or all texts have them.
    In GLUE quotes are a part of the text.

    Args:
        lines: the first lines.
        format_: csv or tsv, as the ending says.
        complete: whether these are all lines; otherwise the last record may be incomplete.
    """
    usual = USUAL[format_]
    first = next((line for line in lines if line.strip()), "")
    if format_ == "tsv" and "\t" in first:
        return Dialect("\t", quoted=_is_quoted_tsv(lines, complete))
    found = {
        delimiter: _measure(Dialect(delimiter, quoted=delimiter != "\t"), lines, complete)
        for delimiter in sorted(DELIMITERS, key=lambda one: one != usual.delimiter)
    }
    if format_ == "tsv":
        found = {
            one: share for one, share in found.items() if share == 1 and f"{one} " not in first
        }
    best = max(found, key=lambda one: found[one], default=None)
    if best is None or not found[best] or best == usual.delimiter:
        return usual
    return Dialect(best, quoted=best != "\t" or _is_quoted_tsv(lines, complete))


def _measure(dialect: Dialect, lines: Sequence[str], complete: bool) -> float:
    """The fraction of records that are as wide as the first; 0 if that has a single column."""
    widths = [len(record) for record in _read(dialect, lines, complete) or [] if record]
    if not widths or widths[0] < MIN_COLUMNS:
        return 0.0
    return widths.count(widths[0]) / len(widths)


def _read(dialect: Dialect, lines: Sequence[str], complete: bool) -> list[list[str]] | None:
    """The records; None if the quoting is invalid."""
    records: list[list[str]] = []
    rows = dialect.split(iter(lines))
    while True:
        try:
            records.append(next(rows))
        except StopIteration:
            return records
        except csv.Error as error:
            is_last = not complete and "unexpected end" in str(error)
            return records if is_last else None


def _is_quoted_tsv(lines: Sequence[str], complete: bool) -> bool:
    """Whether tab-separated fields are quoted; if both readings are possible, they are not."""
    fields = [line.rstrip("\r\n").split("\t") for line in lines if line.strip()]
    with_quotes = [field for record in fields for field in record if '"' in field]
    records = _read(Dialect("\t", quoted=True), lines, complete) if with_quotes else None
    if not records or len({len(record) for record in records if record}) != 1:
        return False
    if len({len(record) for record in fields}) != 1:  # tabs or line breaks inside fields
        return True
    if not all(map(_QUOTED.fullmatch, with_quotes)):
        return False
    texts = [one for record in fields for one in record if one and not _NUMBER.fullmatch(one)]
    return len(texts) == len(with_quotes) or any('""' in one[1:-1] for one in with_quotes)
