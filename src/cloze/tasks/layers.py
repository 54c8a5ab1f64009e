"""Which layers of a frozen encoder make a vector: BERT's six choices, or any list of layers.

Layer 0 is the embeddings, layer k the output of block k; negative numbers count from the top.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from reprlib import repr as short

import torch
from torch import Tensor

from cloze.config import one_of
from cloze.errors import ConfigError, InputError


@dataclass(frozen=True)
class LayerSelection:
    """The layers to read, and whether they are added or laid side by side."""

    numbers: tuple[int, ...]
    add: bool = False

    @property
    def parts(self) -> int:
        """How many widths the joined vector has."""
        return 1 if self.add else len(self.numbers)

    def join(self, layers: Iterable[Tensor]) -> Tensor:
        """One tensor from an encoder's layers; those not asked for are let go at once."""
        kept = {number: x for number, x in enumerate(layers) if number in self.numbers}
        chosen = [kept[number] for number in self.numbers]
        if len(chosen) == 1:
            return chosen[0]
        return torch.stack(chosen).sum(0) if self.add else torch.cat(chosen, dim=-1)


# Of a model with n blocks; the feature-based table of Devlin et al. 2018, whose sum of all layers
# leaves the embeddings out.
LAYER_CHOICES = {
    "embeddings": lambda n: LayerSelection((0,)),  # noqa: ARG005
    "second-to-last": lambda n: LayerSelection((n - 1,)),
    "last": lambda n: LayerSelection((n,)),
    "sum-last-4": lambda n: LayerSelection((n - 3, n - 2, n - 1, n), add=True),
    "concat-last-4": lambda n: LayerSelection((n - 3, n - 2, n - 1, n)),
    "sum-all": lambda n: LayerSelection(tuple(range(1, n + 1)), add=True),
}


def select_layers(choice: str | int | Sequence[int], blocks: int) -> LayerSelection:
    """The layers that a name, a number, or several to lay side by side, mean in this model."""
    if isinstance(choice, str) and re.fullmatch(r"-?\d+(,-?\d+)*", choice):
        choice = [int(number) for number in choice.split(",")]
    if isinstance(choice, int):
        choice = [choice]
    if not isinstance(choice, str):
        try:
            choice = [index(number) for number in choice]
        except TypeError:
            raise ConfigError(
                f"layers is {short(choice)}",
                fix=f"give numbers, or one of {', '.join(LAYER_CHOICES)}",
            ) from None
        if not choice:
            raise ConfigError("no layer is named", fix=f"choose from {', '.join(LAYER_CHOICES)}")
        return LayerSelection(tuple(_resolve(number, blocks) for number in choice))
    layers = LAYER_CHOICES[one_of("layer choice", choice, LAYER_CHOICES)](blocks)
    if min(layers.numbers) < (0 if choice in ("embeddings", "second-to-last") else 1):
        raise InputError(
            f"{choice} needs more layers than the {blocks} of this model",
            fix="choose last, or give the layers by number",
        )
    return layers


def _resolve(number: int, blocks: int) -> int:
    if not -blocks - 1 <= number <= blocks:
        raise InputError(
            f"there is no layer {number} in a model of {blocks} blocks",
            fix=f"use 0 (embeddings) to {blocks}, or -1 (last) to {-blocks - 1}",
        )
    return number % (blocks + 1)
