"""Find and read the files of recipes: those of the package by name, others by path."""

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloze.config import read_toml, suggest, to_mapping
from cloze.errors import ConfigError
from cloze.files import PathLike

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def describe_source(source: object) -> str:
    """The name of a recipe in messages."""
    return str(source) if isinstance(source, str | os.PathLike) else "it"


def read_values(source: "DataclassInstance | PathLike") -> Mapping[str, Any]:
    """The plain values of a recipe, which is given as an object, a name or a file."""
    if isinstance(source, str | os.PathLike):
        return read_toml(find_recipe(source))
    return to_mapping(source)


def list_recipes() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    inside = Path(str(files("cloze"))) / "recipes"
    beside = Path(__file__).resolve().parents[4] / "recipes"  # in a checkout
    folder = inside if inside.is_dir() else beside
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_recipe(source: PathLike) -> Path:
    """The file of a recipe's name, or the file itself."""
    path = Path(source)
    if path.is_file():
        return path
    known = list_recipes()
    if str(source) in known:
        return known[str(source)]
    raise ConfigError(
        f"there is no recipe {source}",
        fix=f"give a recipe or the path of a TOML file; {suggest(str(source), known)}",
    )
