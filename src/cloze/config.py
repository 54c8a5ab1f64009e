"""Frozen dataclasses are the one description of a run; files and flags only fill them."""

import dataclasses
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from cloze.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")


def from_mapping(cls: type[C], values: Mapping[str, Any]) -> C:
    """Build `cls`, refusing any key it does not declare."""
    known = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            raise ConfigError(f"{cls.__name__} has no setting {key!r}", fix=suggest(key, known))
    return cls(**values)


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """`value` itself, or an error that names the choices."""
    known = list(choices)
    if value not in known:
        raise ConfigError(f"{name} {value!r} is unknown", fix=suggest(value, known))
    return value


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
