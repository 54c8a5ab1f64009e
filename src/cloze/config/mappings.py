"""Configurations as nested mappings: from TOML and settings, and back."""

import dataclasses
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from cloze.config.fields import (
    TYPE_NAMES,
    check_list,
    one_of,
    shorten_repr,
    suggest,
    type_error,
)
from cloze.errors import ConfigError, MissingSettingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
# such as ["optimizer.lr=1e-4"], {"optimizer.lr": 1e-4} or {"optimizer": {"lr": 1e-4}}
Settings = Iterable[str] | Mapping[str, Any]


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
        return tuple(_convert(inner[0], item, name) for item in check_list(name, inner, value))
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
            f"{name} is {shorten_repr(value)}, but it is a table of settings",
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
    if hint in TYPE_NAMES and type(value) is not hint:
        raise type_error(name, hint, value, fix=f"use {TYPE_NAMES[hint]}")
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
