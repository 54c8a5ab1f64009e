"""Configurations: frozen dataclasses that declare their ranges and choices, and TOML for them.

The annotation of a field declares the values it accepts, its help and its command-line option:

    @dataclass(frozen=True, kw_only=True)
    class OptimizerConfig(Config):
        lr: Annotated[float, Range(0, 1000), Help("Peak learning rate"), Flag("--lr")] = 1e-4
        name: Literal["adamw", "muon"] = "adamw"

Every object is checked when it is created, from a file or in Python. A rule about several fields
belongs in `__post_init__`, after `super().__post_init__()`. A class whose table in a file is not
simply its fields defines `from_table(values, name)` and `to_table()`.
"""

import dataclasses
import math
import tomllib
import types
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from cloze.errors import ConfigError, MissingSettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
# such as ["optimizer.lr=1e-4"], {"optimizer.lr": 1e-4} or {"optimizer": {"lr": 1e-4}}
Settings = Iterable[str] | Mapping[str, Any]

_TYPE_NAMES = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
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


def from_mapping(cls: type[C], values: Mapping[str, Any], *, inside: str = "") -> C:
    """Build `cls` and the dataclasses in it from a nested mapping, such as a TOML file.

    `inside` is where the values are, for the errors: "train." of a recipe.
    """
    given = read_fields(cls, values, inside=inside)
    for field in dataclasses.fields(cls):
        is_required = field.default is field.default_factory is dataclasses.MISSING
        if field.name not in given and is_required:
            raise MissingSettingError(inside + field.name)
    return cls(**given)


def read_fields(
    cls: type["DataclassInstance"], values: Mapping[str, Any], *, inside: str = ""
) -> dict[str, Any]:
    """The values of the fields that a mapping names, converted to the types of the fields."""
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"unknown setting {inside + key!r}", fix=suggest(key, fields))
        try:
            given[key] = _convert(hints[key], _with_defaults(fields[key], value), inside + key)
        except OverflowError:  # a whole number that no float holds
            large = f"{inside}{key} is far too large"
            raise ConfigError(large, fix="use a smaller number") from None
    return given


def to_mapping(config: "DataclassInstance", *, from_data: bool = True) -> dict[str, Any]:
    """The reverse of `from_mapping`; fields that are None are left out, as TOML has no null.

    With `from_data=False` the fields that the data decide (`FROM_DATA` of a model's configuration,
    such as vocab_size) are left out too.
    """
    found: dict[str, Any] = {}
    skipped = () if from_data else getattr(config, "FROM_DATA", ())
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in skipped:
            continue
        if hasattr(value, "to_table"):
            found[field.name] = value.to_table()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            found[field.name] = to_mapping(value, from_data=from_data)
        elif value is not None:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", fix="correct that line") from None


def override(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """`values` with settings such as "optimizer.lr=1e-4" or {"optimizer.lr": 1e-4} applied."""
    changed = _copy(values)
    for path, value in parse_settings(settings).items():
        *tables, name = path.split(".")
        inner = changed
        for table in tables:
            inner = inner.setdefault(table, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{table} in {path} is not a table", fix=f"set {table} itself")
        inner[name] = value
    return changed


def parse_settings(settings: Settings) -> dict[str, Any]:
    """Settings by their paths: {"optimizer.lr": 1e-4}; tables in them may be nested mappings."""
    if isinstance(settings, Mapping):
        return _flatten(settings)
    if isinstance(settings, str):
        raise ConfigError(f"settings is {settings!r}", fix=f"give a list: [{settings!r}]")
    found = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r} has no value", fix="write it as table.name=value")
        found[path.strip()] = _parse_value(text.strip())
    return found


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one; values of the second replace those of the first."""
    merged = _copy(first)
    for key, value in second.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """`value` itself, or an error that names the choices."""
    known = list(choices)
    if value not in known:
        raise ConfigError(
            f"{name} has an unknown value: {_shorten_repr(value)}", fix=suggest(value, known)
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
    return ConfigError(
        f"{name} must be {_TYPE_NAMES[kind]}, but is {_shorten_repr(value)}", fix=fix
    )


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
        for item in _check_list(name, inner, value):
            check_value(name, inner[0], item)
    elif hint in _TYPE_NAMES:
        _check_scalar(name, hint, value, metadata + own_metadata)


def _check_list(name: str, inner: tuple[Any, ...], value: object) -> Sequence[Any]:
    """`value` itself, or an error if it is not a list of the right length."""
    if not isinstance(value, tuple | list):
        raise ConfigError(f"{name} must be a list, but is {_shorten_repr(value)}", fix="use a list")
    if inner[-1] is not ... and len(value) != len(inner):
        raise ConfigError(
            f"{name} is {_shorten_repr(list(value))}", fix=f"use a list of {len(inner)} values"
        )
    return value


def _check_scalar(name: str, kind: type, value: object, metadata: tuple[Any, ...]) -> None:
    if not _has_type(kind, value):
        allowed = next((f" {item}" for item in metadata if isinstance(item, Range)), "")
        raise type_error(name, kind, value, fix=f"use {_TYPE_NAMES[kind]}{allowed}")
    for item in metadata:
        if isinstance(item, Range) and value not in item:  # type: ignore[operator]
            raise ConfigError(
                f"{name} is {_shorten_repr(value)}, which is out of range",
                fix=f"use {_TYPE_NAMES[kind]} {item}",
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


def _shorten_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"


def _format_number(value: float) -> str:
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e6)  # noqa: PLR2004
    return f"{int(value):,}" if whole else f"{value:g}"


def _with_defaults(field: "dataclasses.Field[Any]", value: object) -> object:
    """A table of a file, completed by the field's own defaults if the field has a factory."""
    make = field.default_factory
    if make is dataclasses.MISSING or isinstance(make, type) or not isinstance(value, Mapping):
        return value
    made: Any = make()
    if not dataclasses.is_dataclass(made) or hasattr(made, "to_table"):
        return value
    return merge(to_mapping(made), value)  # type: ignore[arg-type]  # it is an instance


def _convert(hint: Any, value: object, name: str) -> Any:  # noqa: ANN401
    """Convert a value to the type of its field: tables to dataclasses, lists to tuples."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        first = next(hint for hint in inner if hint is not type(None))
        return None if value is None else _convert(first, value, name)
    if origin is Literal:
        return one_of(name, str(value), inner)
    if origin is tuple:
        if inner == (str, ...) and isinstance(value, str):
            return (value,)
        return tuple(_convert(inner[0], item, name) for item in _check_list(name, inner, value))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _convert_table(hint, value, name)
    return _convert_scalar(hint, value, name)


def _convert_table(kind: type[C], value: object, name: str) -> C:
    """Convert a table to a dataclass; errors about its fields begin with the table's name.

    The same class may be a table of several recipes under several names, so its own errors name
    the field alone: "lr is 7".
    """
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{name} is {_shorten_repr(value)}, but it is a table of settings",
            fix=f"set one of its settings: {name}.NAME",
        )
    if (read := getattr(kind, "from_table", None)) is not None:
        return cast(C, read(value, name))
    try:
        return from_mapping(kind, value, inside=f"{name}.")
    except ConfigError as error:
        setting = error.problem.partition(" ")[0]
        if setting in {field.name for field in dataclasses.fields(kind)}:
            raise ConfigError(f"{name}.{error.problem}", fix=error.fix) from None
        raise


def _convert_scalar(hint: Any, value: object, name: str) -> object:  # noqa: ANN401
    if hint is float and type(value) is int:
        return float(value)
    if hint in _TYPE_NAMES and type(value) is not hint:
        raise type_error(name, hint, value, fix=f"use {_TYPE_NAMES[hint]}")
    return value


def _flatten(values: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        path, is_table = f"{inside}{name}", isinstance(value, Mapping) and value
        found |= _flatten(value, f"{path}.") if is_table else {path: value}
    return found


def _parse_value(text: str) -> Any:  # noqa: ANN401
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a string without quotes


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in values.items()}
