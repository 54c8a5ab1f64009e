"""Minimal pairs: an acceptable sentence and an unacceptable one, from tables and JSON lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloze.data.labelled.examples import Origin
from cloze.data.labelled.records import TABLE_FORMATS, DataInput, Record, read_inputs, read_records
from cloze.data.sources import OnError, Source
from cloze.errors import InputError

# Names of the two columns: those of BLiMP (Warstadt et al. 2020), and short ones.
COLUMNS = (("sentence_good", "sentence_bad"), ("good", "bad"))
_MAX_RATIO = 3  # of the numbers of words of the two; the second is a label if it is much shorter


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimalPair:
    """Two sentences that differ in one property, of which only the first is acceptable."""

    good: str
    bad: str
    origin: Origin = field(default_factory=Origin, compare=False)


def read_minimal_pairs(
    sources: Source | list[Source], *, on_error: OnError = "raise"
) -> Iterator[MinimalPair]:
    """Read the pairs of all sources lazily, in order: csv, tsv, JSON lines, Parquet, data sets.

    The columns are sentence_good and sentence_bad, as in BLiMP, or good and bad; if no columns
    have these names, the first two. A csv or tsv without these names has no header.
    """

    def read(part: DataInput) -> Iterator[MinimalPair | InputError]:
        names: Sequence[Any] | None = None  # of a csv or tsv
        for record in read_records(part, TABLE_FORMATS):
            if isinstance(record, InputError):
                yield record
                continue
            row = record.value
            if isinstance(row, tuple) and names is None:
                names = row if _find_columns(row) else range(len(row))
                if names is row:
                    continue
            if isinstance(row, tuple) and names is not None:
                record = record._replace(value=dict(zip(names, row, strict=False)))
            yield _make_pair(record)

    return read_inputs(sources, TABLE_FORMATS, read, on_error)


def _find_columns(names: Sequence[Any]) -> tuple[Any, Any] | None:
    plain = [str(name).strip().lower() for name in names]
    both = next((two for two in COLUMNS if {*two} <= {*plain}), None)
    return both and (names[plain.index(both[0])], names[plain.index(both[1])])


def _make_pair(record: Record) -> MinimalPair | InputError:
    row = record.value
    fix = "give two columns, sentence_good and sentence_bad"
    if not isinstance(row, Mapping):
        return InputError(f"{record.where}: a row is a {type(row).__name__}", fix=fix)
    good, bad = _find_columns(list(row)) or (*row, None, None)[:2]
    first, second = row.get(good), row.get(bad)
    if not isinstance(first, str) or not isinstance(second, str):
        return InputError(f"{record.where}: a minimal pair needs two sentences", fix=fix)
    if len(first.split()) > len(second.split()) * _MAX_RATIO:
        return InputError(
            f"{record.where}: {second[:40]!r} is not a version of {first[:40]!r}; this looks like "
            "a table of texts and labels",
            fix=f"{fix}, such as `The keys are here.<TAB>The keys is here.`",
        )
    return MinimalPair(good=first, bad=second, origin=record.make_origin())
