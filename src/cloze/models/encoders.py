"""The encoders by the name of their family, and new ones of them."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from cloze.models.bert import Bert
from cloze.models.configs.bert import BertConfig
from cloze.models.configs.distilbert import DistilBertConfig
from cloze.models.configs.encoder import EncoderConfig
from cloze.models.configs.modernbert import ModernBertConfig
from cloze.models.distilbert import DistilBert
from cloze.models.modernbert import ModernBert
from cloze.nn.encoder import Encoder
from cloze.nn.meta import without_memory


@dataclass(frozen=True)
class Family:
    """A kind of model: what describes it, and what it is."""

    config: type[BertConfig] | type[DistilBertConfig] | type[ModernBertConfig]
    module: type[Bert] | type[DistilBert] | type[ModernBert]


MODELS = {
    "bert": Family(BertConfig, Bert),
    "distilbert": Family(DistilBertConfig, DistilBert),
    "modernbert": Family(ModernBertConfig, ModernBert),
}


def on_meta(config: EncoderConfig, heads: Iterable[str] = (), **parts: bool) -> Encoder:
    """The module without memory behind it: shapes to check or count, weights to be put in."""
    config.check_complete()
    with without_memory():
        return MODELS[config.family].module(config, heads, **parts)  # type: ignore[arg-type]


def fresh(
    config: EncoderConfig, heads: Iterable[str] = (), *, rng: torch.Generator, **parts: bool
) -> Encoder:
    """A new module with random weights, drawn from `rng` and nothing else."""
    module = on_meta(config, heads, **parts).to_empty(device=rng.device)
    module.initialise(config.init_std, rng)
    return module
