"""A configuration inside of another one: that of the text encoder of a model of images."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloze.config import from_mapping, to_mapping
from cloze.errors import ConfigError
from cloze.models.configs.base import ModelConfig
from cloze.models.registry import get_family

_CHECKSUM = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class NestedConfig:
    """The configuration of any encoder, stored as a table with its family.

    The weights are those of the model, or those of a model that comes with the package: then only
    its name and the checksum of its weights are stored.
    """

    config: ModelConfig
    builtin: str = ""  # the model whose weights are used; empty: they are stored
    sha256: str = ""  # of its weights

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
        builtin, sha256 = settings.pop("builtin", ""), settings.pop("sha256", "")
        is_reference = bool(builtin or sha256)
        if is_reference and not (
            isinstance(builtin, str) and builtin and _CHECKSUM.fullmatch(str(sha256))
        ):
            raise ConfigError(
                f"{name}.builtin and {name}.sha256 do not name a model and its checksum",
                fix="download the folder again",
            )
        config = from_mapping(found.config_class, settings, inside=f"{name}.")
        return cls(config, builtin, sha256)

    def to_table(self) -> dict[str, Any]:
        """The reverse."""
        reference = {"builtin": self.builtin, "sha256": self.sha256} if self.builtin else {}
        return {"family": self.config.family, **reference, **to_mapping(self.config)}
