"""The fields of configurations: what an annotation declares, and checks of values."""

import dataclasses
import math
import types
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from cloze.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TYPE_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
_MIN_PART = 3  # characters of a part of a name that is suggested
_MAX_REPR = 200  # characters of a wrong value that an error repeats


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a field accepts: from `low` to `high`, or strictly `above` and `below`."""

    low: float = -math.inf
    high: float = math.inf
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            self.low <= value <= self.high
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """As a fix says it: "from 1 to 1,024", "above 0", "of at least 0 and less than 1"."""
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"from {_format_number(self.low)} to {_format_number(self.high)}"
        words = ("of at least", "above", "of at most", "less than")
        limits = zip(words, (self.low, self.above, self.high, self.below), strict=True)
        finite = [
            f"{word} {_format_number(limit)}"
            for word, limit in limits
            if limit is not None and math.isfinite(limit)
        ]
        return " and ".join(finite).replace("and of ", "and ") or "that is finite"


@dataclasses.dataclass(frozen=True)
class Choices:
    """The names that a text field accepts, if its annotation is not a `Literal`."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclasses.dataclass(frozen=True)
class Help:
    """What a field does, with its unit: the help text of its flag."""

    text: str


@dataclasses.dataclass(frozen=True)
class Flag:
    """The command-line option that sets a field."""

    name: str  # "--lr"; a boolean option may be "--whole-word/--no-whole-word"
    metavar: str | None = None
    only: tuple[str, ...] = ()  # the tasks or families that have it; empty: all

    @property
    def option(self) -> str:
        """As a keyword argument: "whole_word"."""
        return self.name.partition("/")[0].removeprefix("--").replace("-", "_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldInfo:
    """One field of a configuration, as it is declared."""

    name: str
    hint: Any  # without metadata and without None
    is_optional: bool  # it may be None
    annotation: Any  # as it is written
    default: Any  # `dataclasses.MISSING` if it has none, or a factory
    help: str | None = None
    flag: Flag | None = None


class Config:
    """Base of the dataclasses whose fields are checked when an object is created."""

    def __post_init__(self) -> None:
        check_fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass


def check_fields(config: "DataclassInstance") -> None:
    """Raise an error if the annotation of a field does not allow its value."""
    for name, hint in _hints(type(config)).items():
        check_value(name, hint, getattr(config, name))


def describe_fields(cls: type["DataclassInstance"]) -> dict[str, FieldInfo]:
    """What the fields of a configuration declare, by name."""
    hints, found = _hints(cls), {}
    for field in dataclasses.fields(cls):
        hint, metadata, is_optional = _unwrap(hints[field.name])
        found[field.name] = FieldInfo(
            name=field.name,
            hint=hint,
            is_optional=is_optional,
            annotation=hints[field.name],
            default=field.default,
            help=next((item.text for item in metadata if isinstance(item, Help)), None),
            flag=next((item for item in metadata if isinstance(item, Flag)), None),
        )
    return found


def check_value(name: str, hint: Any, value: object, metadata: tuple[Any, ...] = ()) -> None:  # noqa: ANN401
    """Raise an error if a value does not fit its annotation; it begins with the field's name."""
    hint, own_metadata, is_optional = _unwrap(hint)
    if value is None and is_optional:
        return
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in inner:
            one_of(name, str(value), [str(choice) for choice in inner])
    elif origin is tuple:
        for item in check_list(name, inner, value):
            check_value(name, inner[0], item)
    elif hint in TYPE_NAMES:
        _check_scalar(name, hint, value, metadata + own_metadata)


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """`value` itself, or an error that names the choices."""
    known = list(choices)
    if value not in known:
        raise ConfigError(
            f"{name} has an unknown value: {shorten_repr(value)}", fix=suggest(value, known)
        )
    return value


def in_range(name: str, value: object, low: int, high: int) -> int:
    """`value` as an integer within [low, high], or an error that says so."""
    check_value(name, int, value, (Range(low, high),))
    assert isinstance(value, int)
    return value


def number(name: str, value: object, low: float, high: float) -> float:
    """`value` as a number within [low, high], or an error that says so."""
    check_value(name, float, value, (Range(low, high),))
    assert isinstance(value, int | float)
    return float(value)


def type_error(name: str, kind: type, value: object, *, fix: str) -> ConfigError:
    """The error for a value that is not of the type int, float, str or bool that a field needs."""
    return ConfigError(f"{name} must be {TYPE_NAMES[kind]}, but is {shorten_repr(value)}", fix=fix)


def suggest(word: str, known: Iterable[str], *, listed: int = 12) -> str:
    """The fix for a mistyped name: the closest known names, and up to `listed` known names."""
    choices = list(known)
    near = [one for one in choices if word in one and len(word) >= _MIN_PART]
    if len(near) not in (2, 3):  # else these are the names that contain the word
        near = get_close_matches(word, choices, 1, cutoff=0.7)
    found = [f"did you mean {' or '.join(map(repr, near))}?"] if near else []
    if found and len(choices) > listed:
        return found[0]
    return " Otherwise ".join([*found, f"choose from {', '.join(choices)}"])


def check_list(name: str, inner: tuple[Any, ...], value: object) -> Sequence[Any]:
    """`value` itself, or an error if it is not a list of the right length."""
    if not isinstance(value, tuple | list):
        raise ConfigError(f"{name} must be a list, but is {shorten_repr(value)}", fix="use a list")
    if inner[-1] is not ... and len(value) != len(inner):
        raise ConfigError(
            f"{name} is {shorten_repr(list(value))}", fix=f"use a list of {len(inner)} values"
        )
    return value


def shorten_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"


@cache
def _hints(cls: type["DataclassInstance"]) -> dict[str, Any]:
    """The annotations of a dataclass's fields, with their metadata."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:  # noqa: ANN401
    """A hint without metadata and None, its metadata, and whether None is allowed."""
    metadata: tuple[Any, ...] = ()
    is_optional = False
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *more = get_args(hint)
            metadata += tuple(more)
        elif origin in (Union, types.UnionType) and type(None) in get_args(hint):
            is_optional = True
            rest = tuple(part for part in get_args(hint) if part is not type(None))
            hint = Union[rest]  # noqa: UP007 - of one type it is that type
        else:
            return hint, metadata, is_optional


def _check_scalar(name: str, kind: type, value: object, metadata: tuple[Any, ...]) -> None:
    if not _has_type(kind, value):
        allowed = next((f" {item}" for item in metadata if isinstance(item, Range)), "")
        raise type_error(name, kind, value, fix=f"use {TYPE_NAMES[kind]}{allowed}")
    for item in metadata:
        if isinstance(item, Range) and value not in item:  # type: ignore[operator]
            raise ConfigError(
                f"{name} is {shorten_repr(value)}, which is out of range",
                fix=f"use {TYPE_NAMES[kind]} {item}",
            )
        if isinstance(item, Choices):
            one_of(name, str(value), item.names)


def _has_type(kind: type, value: object) -> bool:
    """Whether a value has a type; an integer is a float too, a boolean is neither."""
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float) and -math.inf <= value <= math.inf  # not NaN
    return isinstance(value, kind)


def _format_number(value: float) -> str:
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e6)  # noqa: PLR2004
    return f"{int(value):,}" if whole else f"{value:g}"
