"""Rows of Python objects: data frames, data sets, columns, lists of mappings, (texts, labels).

Objects of pandas, polars, pyarrow and datasets are recognized by their attributes; none of these
libraries is imported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from cloze.errors import InputError

_MISSING = ("NAType", "NaTType")  # types of missing values of pandas
_SPLITS = {"train", "validation", "valid", "dev", "test"}  # keys of a mapping of data sets
_PAIR = 2


class Frame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def columns(self) -> Any: ...  # noqa: ANN401


class Rows(Iterable[Any]):
    """The rows of an object as mappings of columns to plain Python values.

    Values of numpy become those of Python, and missing values (NaN, NA) None. Rows that are not
    mappings, such as texts, are unchanged.
    """

    def __init__(self, source: Any, iterate: Callable[[], Iterator[Any]] | None = None) -> None:  # noqa: ANN401
        self.name = f"<{type(source).__name__}>"  # in errors
        self.features = getattr(source, "features", None)  # of `datasets`
        self._iterate = iterate or (lambda: iter(source))

    def __iter__(self) -> Iterator[Any]:
        return map(_to_plain_row, self._iterate())


def is_table(source: object) -> bool:
    """Whether an object has named columns: a data frame, a data set, a mapping of columns."""
    return (
        hasattr(source, "columns")
        or hasattr(source, "column_names")
        or (isinstance(source, Mapping) and _is_column_mapping(source))
    )


def open_rows(source: Any) -> Rows:  # noqa: ANN401
    """The rows of an object; raise if it has none."""
    if isinstance(source, Rows):
        return source
    if isinstance(source, Mapping) and _is_column_mapping(source):
        return _open_columns(source, list(source), list(source.values()))
    iterate = _find_iterator(source)
    is_iterable = isinstance(source, Iterable) and not isinstance(source, Mapping | str | bytes)
    if iterate is None and not is_iterable:
        raise _not_rows_error(source)
    return Rows(source, iterate)


def _find_iterator(source: Any) -> Callable[[], Iterator[Any]] | None:  # noqa: ANN401
    """How the rows of a table are read; None: by iterating over it, as over a data set."""
    if hasattr(source, "column_names") and hasattr(source, "to_batches"):  # pyarrow
        return lambda: (row for part in source.to_batches() for row in part.to_pylist())
    if hasattr(source, "iter_rows"):  # polars
        return lambda: source.iter_rows(named=True)
    if hasattr(source, "itertuples"):  # pandas
        names = _check_names([str(name) for name in source.columns], source)
        return lambda: _iterate_tuples(source, names)
    return None


def pair_texts_with_labels(source: object) -> Rows | None:
    """The rows of a tuple (texts, labels) or of a list of (text, label); None for anything else.

    A text may be a pair of texts.
    """
    if isinstance(source, list) and source and all(map(_is_labelled_text, source)):
        source = tuple(map(list, zip(*source, strict=True)))
    if not isinstance(source, tuple) or len(source) != _PAIR or not all(map(_is_column, source)):
        return None
    texts, labels = source
    first: Any = next(iter(texts), None)
    is_pair = isinstance(first, Sequence) and not isinstance(first, str) and len(first) == _PAIR
    if not isinstance(first, str) and not (is_pair and all(isinstance(o, str) for o in first)):
        return None
    if isinstance(next(iter(labels), None), Mapping):
        return None
    if getattr(labels, "ndim", 1) > 1:
        raise InputError(
            "the labels are a matrix, whose columns have no names",
            fix="pass a list of label names for each text, or a data frame with one column per "
            "label (label_column=[…])",
        )
    if len(texts) != len(labels):
        raise InputError(
            f"there are {len(texts):,} texts, but {len(labels):,} labels",
            fix="pass one label for each text",
        )
    if not is_pair:
        return _open_columns(source, ["text", "label"], [texts, labels])
    pairs = [[one[index] for one in texts] for index in range(_PAIR)]
    return _open_columns(source, ["sentence1", "sentence2", "label"], [*pairs, labels])


def _is_labelled_text(one: object) -> bool:
    return type(one) is tuple and len(one) == _PAIR and isinstance(one[0], str | tuple)


def peek_first(source: Iterable[Any]) -> Any:  # noqa: ANN401
    """The first item of a list or another object that can be read again, or None."""
    return None if isinstance(source, Iterator) else next(islice(iter(source), 1), None)


def _open_columns(source: object, names: Sequence[Any], columns: Sequence[Any]) -> Rows:
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len({*lengths.values()}) > 1:
        counts = ", ".join(f"{name!r} {count:,}" for name, count in lengths.items())
        raise InputError(
            f"the columns have different numbers of rows: {counts}", fix="use equal lengths"
        )
    plain = [str(name) for name in names]
    return Rows(
        source,
        lambda: (dict(zip(plain, row, strict=True)) for row in zip(*columns, strict=True)),
    )


def _iterate_tuples(frame: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    for row in frame.itertuples(index=False, name=None):
        yield dict(zip(names, row, strict=True))


def _check_names(names: list[str], source: object) -> list[str]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"<{type(source).__name__}>: two columns are named {twice!r}", fix="rename one"
        )
    return names


def _is_column(source: object) -> bool:
    """Whether an object has one value per row: a list, a series, an array."""
    if isinstance(source, str | bytes | Mapping) or is_table(source):
        return False
    return hasattr(source, "__iter__") and hasattr(source, "__len__")


def _is_column_mapping(source: Mapping[Any, Any]) -> bool:
    is_split = any(str(name) in _SPLITS for name in source)
    return bool(source) and not is_split and all(map(_is_column, source.values()))


def _not_rows_error(source: object) -> InputError:
    if not isinstance(source, Mapping):
        fix = "pass a data frame, a data set, or a list of mappings"
        if hasattr(source, "collect"):  # of polars, or of Spark
            fix = "pass its result: frame.collect()"
    elif any(isinstance(value, str) for value in source.values()):
        fix = "it is one row: pass a list of rows ([row, row])"
    else:
        fix = "pass one split (data['train'])"
    return InputError(f"a {type(source).__name__} is not an iterable of rows", fix=fix)


def _to_plain_row(row: object) -> object:
    if isinstance(row, Mapping):
        return {str(name): to_plain(value) for name, value in row.items()}
    return to_plain(row)


def to_plain(value: Any) -> Any:  # noqa: ANN401
    """A Python value for one of numpy, pandas or torch; None for a missing one."""
    if type(value) is str or value is None:
        return value
    if isinstance(value, str):  # numpy.str_
        return str(value)
    if isinstance(value, float):
        return None if value != value else float(value)  # noqa: PLR0124 - NaN
    if type(value).__name__ in _MISSING:
        return None
    for method in ("tolist", "to_list"):  # arrays, scalars, tensors, series
        if hasattr(value, method):
            return to_plain(getattr(value, method)())
    return value
