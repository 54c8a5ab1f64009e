"""Options: keyword arguments and flags that recipes declare on their fields."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, get_args, get_origin

from cloze.config import FieldInfo, check_value, describe_fields
from cloze.errors import ConfigError
from cloze.make.recipe.model import ModelChoice

# Every command accepts these; some recipes have no such field.
_UNIVERSAL = frozenset({"device", "dtype", "seed", "threads"})


SYNONYMS = {  # options of other libraries
    "learning_rate": "lr",
    "num_train_epochs": "epochs",
    "num_epochs": "epochs",
    "max_steps": "steps",
    "output": "out",
    "output_dir": "out",
    "per_device_train_batch_size": "batch_size",
    "train_batch_size": "batch_size",
    "max_seq_length": "max_length",
    "warmup_ratio": "warmup",
    "train_file": "train",
    "validation_file": "dev",
    "eval_dataset": "dev",
    "train_dataset": "train",
    "eval": "dev",
    "valid": "dev",
    "input": "file",
    "top_k": "top",
    "overwrite": "force",
    "overwrite_output_dir": "force",
    "resume_from_checkpoint": "resume",
}


class OptionError(ConfigError):
    """An option that this family or task does not have."""

    def __init__(self, option: str, owner: str, *, fix: str) -> None:
        super().__init__(f"{owner} has no option {option}", fix=fix)
        self.option, self.owner = option, owner

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_option_error, (self.option, self.owner, self.fix)


class OptionValueError(ConfigError):
    """A value that an option does not accept; the message begins with the name of the option."""

    option: str = ""


def map_options(
    cls: type[Any], options: Mapping[str, Any], *, owner: str = "it", task: str | None = None
) -> dict[str, Any]:
    """Options as settings of a recipe class, by their paths."""
    found, paths = find_options(cls), {}
    known = {name: found[name] for name in found if _is_for_task(found[name][1], task)}
    for name, value in options.items():
        if name not in known:
            if name in _UNIVERSAL:
                continue
            raise OptionError(name, owner, fix=_suggest_option(name, cls, known))
        path, info = known[name]
        if name.endswith("_column"):  # a column may be given by its number
            value = _convert_column(value)
        paths[path] = _convert_option(info, value)
        try:
            check_value(name, info.annotation, paths[path])
        except ConfigError as error:
            wrong = OptionValueError(error.problem, fix=error.fix)
            wrong.option = name
            raise wrong from None
    return paths


def check_tables(cls: type[Any], paths: Iterable[str]) -> None:
    """Raise if a setting of a table is given without the table, such as epochs (run.epochs)."""
    names = describe_fields(cls)
    for path in paths:
        if path not in names and "." not in path:
            full = [one for one, _ in walk_fields(cls) if one.endswith(f".{path}")]
            if full:
                raise ConfigError(
                    f"unknown setting {path!r}", fix=f"write it with its table: {' or '.join(full)}"
                )


def find_options(cls: type[Any]) -> dict[str, tuple[str, FieldInfo]]:
    """The fields of a recipe class that have a flag, by the flag's name, with their paths."""
    found = {info.flag.option: (path, info) for path, info in walk_fields(cls) if info.flag}
    unused = getattr(cls, "UNUSED_FLAGS", ())  # of fields that this recipe shares but ignores
    return {name: found[name] for name in found if name not in unused}


def walk_fields(cls: type[Any], inside: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The fields of a recipe class and of the tables in it, with their paths."""
    for name, info in describe_fields(cls).items():
        kinds = [one for one in (info.hint, *get_args(info.hint)) if is_dataclass(one)]
        if kinds and not (cls is ModelChoice and name == "config"):
            assert isinstance(kinds[0], type)
            yield from walk_fields(kinds[0], f"{inside}{name}.")
        else:
            yield inside + name, info


def _convert_option(info: FieldInfo, value: Any) -> Any:  # noqa: ANN401
    """A value as plain Python: numbers of NumPy, paths, and devices and dtypes of torch."""
    if get_origin(info.hint) is tuple:
        is_single = isinstance(value, str | os.PathLike)
        return tuple(map(_convert_text, [value] if is_single else value))
    if info.hint is str:
        return _convert_text(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return int(number) if info.hint is int and number.is_integer() else number


def _convert_column(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return [_convert_column(one) for one in value]
    return str(value) if isinstance(value, Integral) else value


def _convert_text(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def _suggest_option(name: str, cls: type[Any], known: Mapping[str, Any]) -> str:
    """What to do about an option that a recipe class does not have."""
    if (meant := SYNONYMS.get(name, "")) in known:
        return f"did you mean {meant!r}?"
    if near := get_close_matches(name, known, 1, cutoff=0.7):
        return f"did you mean {near[0]!r}?"
    others = (path for path, info in walk_fields(cls) if info.flag is None)
    paths = [path for path in others if path.rpartition(".")[2] == name]
    return f"use settings={{{paths[0]!r}: …}}" if paths else "leave it out"


def _is_for_task(info: FieldInfo, task: str | None) -> bool:
    assert info.flag is not None
    return task is None or not info.flag.only or task in info.flag.only


def _restore_option_error(option: str, owner: str, fix: str) -> OptionError:
    return OptionError(option, owner, fix=fix)
