"""The table `model` of recipes: a family with its configuration, or a model to continue.

[model]
family = "bert"        # which configuration class the other settings belong to
preset = "mini"        # a size of that family
dropout = 0.0          # any setting of its configuration, except what the data decide
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from cloze.checkpoint.source import find_local_folder
from cloze.config import Config, Flag, Help, read_fields, suggest, to_mapping, type_error
from cloze.errors import ConfigError
from cloze.files import PathLike
from cloze.models.configs.base import ModelConfig
from cloze.models.registry import Family, find_family, get_family, list_families

DEFAULT_PRESET = "mini"


@dataclass(frozen=True, kw_only=True)
class ModelSource(Config):
    """The model that a run starts from."""

    init_from: Annotated[str, Help('Model folder, built-in model or "org/name"')] = ""


@dataclass(frozen=True, kw_only=True)
class ModelChoice(Config):
    """A new model of a family, or a model to continue, which keeps its own configuration."""

    family: Annotated[str, Help("Model family")] = "bert"
    init_from: Annotated[
        str | None,
        Help('Model to continue training: a folder, a built-in model or "org/name"'),
        Flag("--init-from", "MODEL"),
    ] = None
    preset: Annotated[
        str | None,
        Help(
            "Size of the model: tiny, mini, small, medium, base, large; modernbert also cloze; "
            "gpt2 also gpt2 … gpt2-xl; gpt3 also gpt3-125m … gpt3-175b; "
            "elmo: original, small, tiny"
        ),
        Flag("--preset", "SIZE"),
    ] = None
    position_init: Annotated[
        Literal["normal", "sinusoidal"],
        Help("Initial values of learned position embeddings: noise, or sine waves"),
    ] = "normal"
    config: ModelConfig | None = None  # None: of the model to continue

    def __post_init__(self) -> None:
        _check_preset("preset", self.preset, self.family)
        super().__post_init__()
        if self.config is not None:
            object.__setattr__(self, "family", self.config.family)
        elif self.init_from is None:
            object.__setattr__(self, "config", _make_config(self.family, self.preset, {}))
        if self.init_from is not None:
            object.__setattr__(self, "config", None)
            object.__setattr__(self, "preset", None)

    @property
    def new_config(self) -> Any:  # noqa: ANN401 (of the family's own class)
        """The configuration of a new model."""
        assert self.config is not None
        return self.config

    @classmethod
    def from_table(cls, values: Mapping[str, Any], name: str) -> "ModelChoice":
        """From the settings of the choice and those of the family's configuration together."""
        own = {field.name for field in fields(cls)} - {"config"}
        _check_preset(f"{name}.preset", values.get("preset"), values.get("family", cls.family))
        choice = read_fields(
            cls, {key: values[key] for key in values if key in own}, inside=f"{name}."
        )
        if choice.get("init_from") is not None:  # all else is as that model has it
            return cls(**{key: choice[key] for key in choice if key != "preset"})
        family = choice.setdefault("family", cls.family)
        rest = {key: values[key] for key in values if key not in own}
        config_class = get_family(family).config_class
        _check_names(config_class, rest, own, name)
        given = read_fields(config_class, rest, inside=f"{name}.")
        try:
            config = _make_config(family, choice.get("preset"), given)
        except ConfigError as error:
            if error.problem.partition(" ")[0] in {"preset", *_names(config_class)}:
                raise ConfigError(f"{name}.{error.problem}", fix=error.fix) from None
            raise
        return cls(**choice, config=config)

    def to_table(self) -> dict[str, Any]:
        """The reverse."""
        found = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "config" and getattr(self, field.name) is not None
        }
        if self.config is not None:
            found |= to_mapping(self.config, from_data=False)
        return found


def detect_family(init_from: object) -> Family | None:
    """The family of a model that is on this machine; None where that is not known here."""
    if not isinstance(init_from, str | os.PathLike):
        return None
    from cloze.checkpoint.contents import find_body, read_family
    from cloze.checkpoint.load import detect_weights_file  # imports numpy, which help must not

    if (published := detect_weights_file(init_from)) is not None:
        return published
    folder = find_local_folder(init_from)
    return None if folder is None else read_family(find_body(folder))


def detect_causality(init_from: PathLike) -> bool:
    """Whether a model is causal by its configuration; False where that is not known here."""
    from cloze.checkpoint.contents import find_body, read_causality

    folder = find_local_folder(init_from)
    return folder is not None and read_causality(find_body(folder))


def preset_settings(family: str) -> set[str]:
    """The settings that a preset of a family decides."""
    known = find_family(family)
    presets = known.config_class.PRESETS if known else {}
    return {name for settings in presets.values() for name in settings}


def _check_preset(name: str, preset: object, family: object) -> None:
    """Raise an error that names the presets unless a preset is a string."""
    if preset is not None and not isinstance(preset, str):
        known = find_family(family)
        presets = known.config_class.PRESETS if known else ()
        raise type_error(
            name, str, preset, fix=f"choose from {', '.join(presets)}" if presets else "use a name"
        )


def _make_config(family: str, preset: str | None, settings: Mapping[str, Any]) -> ModelConfig:
    config_class = get_family(family).config_class
    if preset is None and DEFAULT_PRESET in config_class.PRESETS:
        preset = DEFAULT_PRESET
    made: ModelConfig
    if preset is None:
        made = config_class(**settings)
    elif not config_class.PRESETS:
        raise ConfigError(f"preset is {preset!r}, but {family} has no presets", fix="leave it out")
    else:
        made = config_class.preset(preset, **settings)
    return made


def _names(config_class: type[ModelConfig]) -> list[str]:
    """The settings of a configuration that the data do not decide."""
    return [f.name for f in fields(config_class) if f.name not in config_class.FROM_DATA]


def _check_names(
    config_class: type[ModelConfig], values: Mapping[str, Any], own: set[str], name: str
) -> None:
    known = _names(config_class)
    for key in values:
        if key in config_class.FROM_DATA:
            raise ConfigError(f"{name}.{key} follows from the data", fix="leave it out")
        if key not in known:
            others = [one.name for one in list_families().values() if key in _names_of(one)]
            family = config_class.family
            problem, fix = f"unknown setting '{name}.{key}' of the family {family}", ""
            recipe = get_family(family).recipe
            if others:
                problem += f", only of {', '.join(others)}"
            if others and recipe is not None:
                fix = (
                    f"leave it out; if it is in the recipe, use one for {family}, such as {recipe}"
                )
            raise ConfigError(problem, fix=fix or suggest(key, [*sorted(own), *known]))


def _names_of(family: Family) -> list[str]:
    return _names(family.config_class)
