"""What the results of all functions share: JSON objects, tables, and views in notebooks.

A function returns one result for one input, and `Results`, which is a list, for several.
"""

from collections.abc import Sequence
from dataclasses import MISSING, Field, asdict, fields
from reprlib import Repr
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar, cast, overload

from cloze.errors import MissingLibraryError

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
MAX_SHOWN = 20  # results of a list that a notebook shows


class Result:
    """Base class of results, which are frozen dataclasses."""

    __slots__ = ()
    record_columns: ClassVar[tuple[str, ...]] = ()  # of `to_records`, which may be empty

    def __repr__(self) -> str:
        """The fields that differ from their default; long values are shortened."""
        values = ((one, getattr(self, one.name)) for one in fields(cast(Any, self)) if one.repr)
        shown = (
            f"{one.name}={_shorten(value)}" for one, value in values if not _is_default(one, value)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the result."""
        return asdict(cast(Any, self))

    def to_records(self) -> list[dict[str, Any]]:
        """The rows of the table that `to_pandas` returns, as dicts with the same keys."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """The result as a table with a row per prediction."""
        return _make_frame([self], numbered=False)


class Results(list[T]):
    """The results of several inputs, in their order: a list that notebooks show and tables read."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Results[T]": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "T | Results[T]":
        if isinstance(index, slice):
            return Results(super().__getitem__(index))
        return super().__getitem__(index)

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON objects of the results."""
        return [cast(Any, one).to_dict() for one in self]

    def to_records(self) -> list[dict[str, Any]]:
        """The rows of all results."""
        return [row for one in self for row in cast(Any, one).to_records()]

    def to_pandas(self) -> "pd.DataFrame":
        """All results as one table. Its index is the number of the input, from 0.

        So `frame.join(results.to_pandas())` adds the results to a table of the inputs.
        """
        return _make_frame(cast(Sequence[Result], self), numbered=True)

    def _repr_html_(self) -> str:
        """HTML for notebooks: the first results, one below the other."""
        shown = "".join(
            f'<div style="margin: 0 0 1.2em">{_render_result(one)}</div>'
            for one in self[:MAX_SHOWN]
        )
        if len(self) <= MAX_SHOWN:
            return f"<div>{shown}</div>"
        return f'<div>{shown}<div style="opacity: .7">{MAX_SHOWN} of {len(self):,}</div></div>'


def _is_default(one: Field[Any], value: object) -> bool:
    if one.default_factory is not MISSING:
        return bool(value == one.default_factory())
    return one.default is not MISSING and bool(value == one.default)


def _shorten(value: object) -> str:
    shortener = Repr()
    shortener.maxstring, shortener.maxother = 100, 200
    shortener.maxtuple = shortener.maxlist = shortener.maxdict = 5
    return shortener.repr(value)


def _render_result(one: object) -> str:
    render = getattr(one, "_repr_html_", None)
    if render:
        return str(render())
    import html

    return f"<pre>{html.escape(repr(one))}</pre>"


def _make_frame(results: Sequence[Result], *, numbered: bool) -> "pd.DataFrame":
    try:
        import pandas as pd
    except ImportError:
        raise MissingLibraryError("to_pandas", library="pandas") from None
    tables = [one.to_records() for one in results]
    rows = [row for table in tables for row in table]
    columns = list(dict.fromkeys(key for row in rows for key in row))  # by first occurrence
    if not rows and results:
        columns = list(results[0].record_columns)
    numbers = [number for number, table in enumerate(tables) for _ in table]
    index = pd.Index(numbers, dtype="int64") if numbered else None
    return pd.DataFrame(rows, index=index, columns=columns)
