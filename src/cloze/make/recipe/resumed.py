"""The arguments of a command that resumes a run, which may be those that started it.

An argument that is as in the run is ignored. Settings that do not change what is computed may be
changed. Any other difference is an error that names both values.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.config import Settings, parse_settings, to_mapping
from cloze.errors import ConfigError
from cloze.files import PathLike, absolute_path
from cloze.make.recipe.classes import get_recipe_class
from cloze.make.recipe.complete import build_recipe
from cloze.make.recipe.complete import recipe as complete
from cloze.make.recipe.files import find_recipe, read_values
from cloze.make.recipe.finetune import AXES
from cloze.make.recipe.options import find_options, map_options
from cloze.make.recipe.run import CHANGEABLE, EXCLUSIVE
from cloze.make.sources import name_sources, resolve_model_name

# Settings that name files and models, which a run saves with absolute paths.
_FILES = frozenset({"data.train", "data.dev", "data.folder", "retrieval.database"})
_MODELS = frozenset(
    {"model.init_from", "vocabulary.folder", "distill.teacher", "retrieval.encoder"}
)
# When all trials are finished, the run has the recipe of the best one.
_OF_TRIALS = frozenset(f"run.{name}" for name in ("seed", "seeds", "search", "fixed")).union(
    *AXES.values()
)
_ARGUMENTS = {
    "task": "TASK",
    "model.family": "--family",
    "model.init_from": "MODEL",
    "data.train": "--train",
    "data.dev": "--dev",
}


def find_changes(
    run: Path,
    *,
    options: Mapping[str, Any],
    settings: Settings = (),
    arguments: Mapping[str, Any] | None = None,
    source: PathLike | None = None,
    has_trials: bool = False,
) -> dict[str, Any]:
    """The settings that a command changes in the run whose recipe is in a file.

    Args:
        run: the recipe file of the run.
        options: by the names of their flags.
        settings: by their paths.
        arguments: other arguments, as settings by their paths.
        source: the recipe that the command names.
        has_trials: whether the run has several trials.
    """
    values = read_values(run)
    cls = get_recipe_class(values)
    named = {path: value for path, value in (arguments or {}).items() if value}
    mapped = map_options(cls, options, owner="this run")
    given = {**mapped, **parse_settings(settings), **named}
    given = {path: _resolve(path, value) for path, value in given.items()}
    own = _flatten(to_mapping(complete(run)))
    wanted = {path: value for path, value in given.items() if path not in CHANGEABLE}
    if source is not None:
        wanted = {**_read_recipe(source, wanted), **wanted}
    if "model.family" in wanted:  # another family has other settings
        _compare("model.family", own.get("model.family"), wanted["model.family"], cls, run)
    made = _flatten(to_mapping(build_recipe(cls, values, wanted)))
    compared = {*wanted}
    if "model.preset" in wanted:  # it decides about sizes
        compared |= {path for path in made if path.startswith("model.")}
    if has_trials and own.get("run.seeds", 1) == 1 and not own.get("run.search"):
        compared -= _OF_TRIALS
    for path in sorted(compared):
        _compare(path, own.get(path), made.get(path), cls, run)
    return {path: value for path, value in given.items() if path in CHANGEABLE}


def describe_differences(own: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The settings of two recipes that differ, with both values."""
    before, after = _flatten(own), _flatten(given)
    return ", ".join(
        f"{path} was {_describe(before.get(path))} and is {_describe(after.get(path))}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _read_recipe(source: PathLike, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe that must be as in the run, unless others are given."""
    found = _flatten(read_values(find_recipe(source)))
    replaced = {
        f"run.{name}"
        for group in EXCLUSIVE
        if any(f"run.{name}" in given for name in group)
        for name in group
    }
    if "model.family" in given:
        replaced.add("sampling.pairs")  # the family decides
    return {path: found[path] for path in found.keys() - CHANGEABLE - replaced}


def _resolve(path: str, value: Any) -> Any:  # noqa: ANN401
    """A value as a run saves it: with absolute paths."""
    if path in _FILES:
        is_one = isinstance(value, str | os.PathLike)
        return absolute_path(value) if is_one else [*name_sources(value)]
    return resolve_model_name(value) if path in _MODELS else value


def _flatten(values: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flatten(value, f"{inside}{name}.")
        else:
            found[inside + name] = list(value) if isinstance(value, tuple) else value
    return found


def _compare(path: str, own: object, given: object, cls: type[Any], run: Path) -> None:
    if own == given:
        return
    flags = {at: f"--{name.replace('_', '-')}" for name, (at, _) in find_options(cls).items()}
    option = flags.get(path) or _ARGUMENTS.get(path) or path
    raise ConfigError(
        f"{option} is {_describe(given)}, but the run in {run.parent} has {_describe(own)}",
        fix="leave it out to resume the run as it is, or start a new run in another --out",
    )


def _describe(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
