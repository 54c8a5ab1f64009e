"""A configuration inside of another one: that of the text encoder of a model of images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloze.config import from_mapping, to_mapping
from cloze.errors import ConfigError
from cloze.models.configs.base import ModelConfig
from cloze.models.registry import get_family


@dataclass(frozen=True)
class NestedConfig:
    """The configuration of any encoder, stored as a table with its family."""

    config: ModelConfig

    @classmethod
    def from_table(cls, values: Mapping[str, Any], name: str) -> "NestedConfig":
        """From the settings, among them the family."""
        settings = dict(values)
        family = settings.pop("family", None)
        if not isinstance(family, str):
            raise ConfigError(f"{name}.family is missing", fix="name the family of the encoder")
        found = get_family(family)
        if found.kind != "encoder":
            raise ConfigError(
                f"{name}.family is {family}, which is not an encoder", fix="use bert, for example"
            )
        return cls(from_mapping(found.config_class, settings, inside=f"{name}."))

    def to_table(self) -> dict[str, Any]:
        """The reverse."""
        return {"family": self.config.family, **to_mapping(self.config)}
