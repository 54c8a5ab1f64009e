"""Frozen dataclasses are the one description of a run; files and flags only fill them."""

import dataclasses
import tomllib
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from cloze.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")

_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def from_mapping(cls: type[C], values: Mapping[str, Any], *, inside: str = "") -> C:
    """Build `cls` and the dataclasses in it, of the keys it declares and all that it needs.

    `inside` is where the values stand, for the errors: "train." of a recipe.
    """
    hints = get_type_hints(cls)
    known = [field.name for field in dataclasses.fields(cls)]
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"there is no setting {inside}{key}", fix=suggest(key, known))
        try:
            given[key] = _typed(hints[key], value, inside + key)
        except OverflowError:  # a whole number that no float holds
            raise ConfigError(
                f"{inside}{key} is far too large", fix="use a smaller number"
            ) from None
    for field in dataclasses.fields(cls):
        if field.name not in given and not _has_default(field):
            raise ConfigError(f"{inside}{field.name} is missing", fix="add it, with its value")
    return cls(**given)


def to_mapping(config: "DataclassInstance") -> dict[str, Any]:
    """The opposite, with nothing that TOML cannot say: what is None is left out."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found[field.name] = to_mapping(value)
        elif value is not None:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as it is."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", fix="mend that line") from None


def to_toml(config: "DataclassInstance | Mapping[str, Any]") -> str:
    """A file of settings, which `read_toml` and `from_mapping` turn back; complete of a config."""
    values = config if isinstance(config, Mapping) else to_mapping(config)
    return _lines(values, "").lstrip("\n")


def override(values: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """`values` with settings such as "train.learning_rate=1e-4" put in."""
    if isinstance(settings, str):
        raise ConfigError(f"settings is {settings!r}", fix=f"give a list: [{settings!r}]")
    changed = _copy(values)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r} sets nothing", fix="write it as table.name=value")
        *tables, name = path.strip().split(".")
        place = changed
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{table} in {path} is not a table", fix="name it.like.this=1")
        place[name] = _value(text.strip())
    return changed


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one; the second has the last word."""
    merged = _copy(first)
    for key, value in second.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """`value` itself, or an error that names the choices."""
    known = list(choices)
    if value not in known:
        raise ConfigError(f"{name} {value!r} is unknown", fix=suggest(value, known))
    return value


def check_choices(config: "DataclassInstance") -> None:
    """Refuse a value that the `Literal` of its field does not name.

    Files are read by the annotations, but an object made in Python is not held to them: a
    dataclass with choices calls this as it is made.
    """
    for name, choices in _choices(type(config)).items():
        value = getattr(config, name)
        if value not in choices:
            one_of(name, str(value), [str(one) for one in choices if one is not None])


def in_range(name: str, value: object, low: int, high: int) -> int:
    """`value` as an integer within [low, high], or an error that says so."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(
            f"{name} is {value!r}", fix=f"use a whole number from {low:,} to {high:,}"
        )
    return value


def number(name: str, value: object, low: float, high: float) -> float:
    """`value` as a finite number within [low, high], or an error that says so."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}", fix=f"use a number from {low:g} to {high:g}")
    return float(value)


def suggest(word: str, known: Iterable[str]) -> str:
    """The remedy for a mistyped name: the nearest known one, or all of them."""
    choices = list(known)
    near = get_close_matches(word, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(choices)}"


def _has_default(field: "dataclasses.Field[Any]") -> bool:
    none = dataclasses.MISSING
    return field.default is not none or field.default_factory is not none


def _typed(hint: Any, value: object, name: str) -> Any:  # noqa: ANN401
    """`value` as the annotation wants it: dataclasses from tables, tuples from lists."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if value is None else _typed(_first(inner), value, name)
    if origin is Literal:
        return one_of(name, str(value), inner)
    if origin is tuple:
        return _several(inner, value, name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _table(hint, value, name)
    return _scalar(hint, value, name)


def _several(inner: tuple[Any, ...], value: object, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} is {value!r}", fix="use a list")
    if inner[-1] is not ... and len(value) != len(inner):
        raise ConfigError(f"{name} is {list(value)}", fix=f"use a list of {len(inner)}")
    return tuple(_typed(inner[0], item, name) for item in value)


def _table(kind: type[C], value: object, name: str) -> C:
    """Its errors with its name in front, where they speak of one of its settings.

    A table may stand in several recipes and under several names: it says "rate is 7" alone.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {value!r}", fix="it is a table of settings")
    try:
        return from_mapping(kind, value, inside=f"{name}.")
    except ConfigError as error:
        setting = error.problem.partition(" ")[0]
        if setting in {field.name for field in dataclasses.fields(kind)}:
            raise ConfigError(f"{name}.{error.problem}", fix=error.fix) from None
        raise


def _scalar(hint: Any, value: object, name: str) -> object:  # noqa: ANN401
    if hint is float and type(value) is int:
        return float(value)
    if hint in _NAMES and type(value) is not hint:
        raise ConfigError(f"{name} is {value!r}", fix=f"use {_NAMES[hint]}")
    return value


@cache
def _choices(cls: type["DataclassInstance"]) -> dict[str, tuple[object, ...]]:
    """The values of each field that has choices; None among them where it may be left out."""
    found = {}
    for name, hint in get_type_hints(cls).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if all(get_origin(part) is Literal or part is type(None) for part in parts):
            found[name] = tuple(one for part in parts for one in get_args(part) or (None,))
    return found


def _first(inner: tuple[Any, ...]) -> Any:  # noqa: ANN401
    return next(hint for hint in inner if hint is not type(None))


def _value(text: str) -> Any:  # noqa: ANN401
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a word without quotes


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def _lines(values: Mapping[str, Any], table: str) -> str:
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    text = f"\n[{table}]\n" if table and plain else ""
    text += "".join(f"{key} = {_literal(value)}\n" for key, value in plain.items())
    for key, value in values.items():
        if isinstance(value, Mapping):
            text += _lines(value, f"{table}.{key}" if table else key)
    return text


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(_escape(character) for character in value)
        return f'"{escaped}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
