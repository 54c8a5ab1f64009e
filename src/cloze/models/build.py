"""Build modules from configurations: on the meta device, or with random weights."""

from collections.abc import Iterable
from dataclasses import replace
from inspect import signature
from typing import Any

import torch

from cloze.models.configs.base import ModelConfig
from cloze.models.configs.encoder import EncoderConfig
from cloze.models.registry import get_family
from cloze.nn.utils import skip_allocation


def build_on_meta(config: ModelConfig, task_heads: Iterable[str] = (), **parts: bool) -> Any:  # noqa: ANN401 (the module of any family)
    """The module on the meta device: shapes without values, to count or to load weights into."""
    config.check_complete()
    family = get_family(config.family)
    heads = (task_heads,) if family.kind == "encoder" else ()
    with skip_allocation():
        return family.module_class(config, *heads, **parts)


def build(
    config: ModelConfig,
    task_heads: Iterable[str] = (),
    *,
    rng: torch.Generator,
    vocab_size: int | None = None,
    **parts: bool,
) -> Any:  # noqa: ANN401 (the module of any family)
    """A module with random weights, drawn from `rng` only, on its device."""
    if vocab_size is not None:
        config = replace(config, vocab_size=vocab_size)
    module = build_on_meta(config, task_heads, **parts).to_empty(device=rng.device)
    if isinstance(config, EncoderConfig):
        module.init_weights(config.init_std, rng)
    else:
        module.init_weights(rng)
    return module


def pooler_option(config: ModelConfig, *, has_pooler: bool) -> dict[str, bool]:
    """The argument `pooler` of the module class, for families whose pooler is optional."""
    accepted = signature(get_family(config.family).module_class).parameters
    return {"pooler": has_pooler} if "pooler" in accepted else {}
