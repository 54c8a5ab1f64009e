"""How the folders of both families are written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloze.interop.layout import Description
from cloze.interop.own import OwnLayout
from cloze.models.configs.base import ModelConfig


@dataclass(frozen=True, kw_only=True)
class EncoderLayout(OwnLayout):
    """Our fields by their names; the task heads are listed beside them."""

    def read_config(self, values: Mapping[str, Any], stored: Iterable[str] = ()) -> Description:
        settings = dict(values)
        heads = tuple(settings.pop("task_heads", ()))
        return replace(super().read_config(settings, stored), task_heads=heads)

    def write_config(
        self, config: ModelConfig, task_heads: Iterable[str] = (), **options: Any
    ) -> dict[str, Any]:
        return super().write_config(config, task_heads, **options) | {"task_heads": [*task_heads]}


ENCODER = EncoderLayout(family="toy-encoder")
LANGUAGE_MODEL = OwnLayout(family="toy-lm", required=("vocab_size", "bos_id"))
