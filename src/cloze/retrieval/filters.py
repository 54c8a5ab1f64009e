"""Conditions on the metadata of documents: `{"year": {">=": 1990}, "lang": ["en", "de"]}`.

They are evaluated here for every store, so all stores agree, and no text of a user becomes part of
a query language.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from cloze.errors import InputError

# a column, and its value, several values, or values of operators
Filter: TypeAlias = Mapping[str, Any]
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS = ("=", "!=", *_ORDERED)
_TEXT = re.compile(r"\s*([^<>=!]+?)\s*(!=|<=|>=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_FIX = 'write a column, an operator and a value: "year>=1990", "lang=en", "lang!=de"'


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What the value of a column has to be."""

    column: str
    operator: str
    values: tuple[Any, ...]  # one, or for = and != several

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether metadata fulfil the condition; a missing value only fulfils !=."""
        value = metadata.get(self.column)
        if self.operator in _ORDERED:
            return any(_compare(one, self.values[0], self.operator) for one in _as_list(value))
        is_equal = any(_are_equal(one, other) for one in _as_list(value) for other in self.values)
        return is_equal == (self.operator == "=")


def parse_filter(given: Filter | Iterable[str] | None) -> tuple[Condition, ...]:
    """The conditions of a mapping, or of texts such as "year>=1990"; all must be fulfilled."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(one for column, value in given.items() for one in _parse_value(column, value))
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Iterable):
        raise InputError(f"a filter has type {type(given).__name__}", fix="use a mapping")
    return tuple(_parse_text(one) for one in given)


def _parse_value(column: object, value: object) -> list[Condition]:
    if not isinstance(column, str) or not column:
        raise InputError(f"{column!r} is not the name of a column", fix="use a string")
    if not isinstance(value, Mapping):
        return [Condition(column=column, operator="=", values=_check_values(column, value))]
    return [_make_condition(column, str(name), one) for name, one in value.items()]


def _make_condition(column: str, name: str, value: object) -> Condition:
    name = {"==": "="}.get(name, name)
    if name not in OPERATORS:
        raise InputError(
            f"the filter of {column!r} has the operator {name!r}",
            fix=f"use one of {', '.join(OPERATORS)}",
        )
    values = _check_values(column, value)
    if name in _ORDERED and len(values) != 1:
        raise InputError(f"the operator {name} of {column!r} needs one value", fix="give one")
    return Condition(column=column, operator=name, values=values)


def _check_values(column: str, value: object) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list | tuple | set) else (value,)
    for one in values:
        if one is not None and not isinstance(one, str | int | float | bool):
            raise InputError(
                f"the filter of {column!r} has a value of type {type(one).__name__}",
                fix="use a text, a number, true, false or None, or a list of these",
            )
    return values


def _parse_text(text: object) -> Condition:
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"{str(text)[:80]!r} is not a condition", fix=_FIX)
    column, name, value = found.groups()
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = value
    return _make_condition(column, name, value if isinstance(parsed, dict) else parsed)


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) and value else (value,)


def _are_equal(one: object, other: object) -> bool:
    if one is None or other is None:
        return one is other
    if isinstance(one, bool) or isinstance(other, bool):
        return _to_text(one) == _to_text(other)
    first, second = _to_number(one), _to_number(other)
    if first is not None and second is not None:
        return first == second
    return _to_text(one) == _to_text(other)


def _compare(one: object, other: object, name: str) -> bool:
    """Numbers are compared as numbers, even if a table stores them as text; others as text."""
    if one is None or other is None:
        return False
    first, second = _to_number(one), _to_number(other)
    if first is not None and second is not None:
        return _ORDERED[name](first, second)
    if isinstance(other, str):
        return _ORDERED[name](_to_text(one), other)
    return False


def _to_number(value: object) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return value if isinstance(value, int) else float(value)
    except ValueError:
        return None


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
