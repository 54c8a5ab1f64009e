"""Optimisers, by name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from cloze.config import check_choices, number
from cloze.errors import ConfigError
from cloze.nn.attention import Attention
from cloze.nn.blocks import GatedFeedForward
from cloze.train.muon import Muon

_FUSED = ("cpu", "cuda", "mps", "xpu")  # where torch has AdamW as one kernel


Name = Literal["adamw", "muon"]


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """The defaults are the paper's (Devlin et al. 2018, appendix A.2)."""

    name: Name = "adamw"
    rate: float = 1e-4  # the highest; the schedule scales it
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    decay: float = 0.01
    other_rate: float = 1e-3  # muon: of AdamW, for all that is no matrix of a block

    def __post_init__(self) -> None:
        check_choices(self)
        number("rate", self.rate, 0.0, 1e3)
        betas = list(self.betas)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):  # noqa: PLR2004
            raise ConfigError(f"betas is {betas}", fix="use two shares below 1")
        number("eps", self.eps, 0.0, 1.0)
        number("decay", self.decay, 0.0, 1e3)
        number("other_rate", self.other_rate, 0.0, 1e3)


def optimiser(
    model: nn.Module, config: OptimiserConfig, factor: Callable[[str], float] = lambda _: 1.0
) -> Optimizer:
    """The optimiser of a model whose weights are where they will be trained.

    `factor` scales the rate of a weight by its name: lower layers may learn more slowly. Every
    group keeps its highest rate under "peak", for the schedule to scale.
    """
    made = OPTIMISERS[config.name](model, config, factor)
    for group in made.param_groups:
        group["peak"] = group["lr"]
        weight = group["params"][0]
        if weight.device.type == "cuda":  # where a recorded step finds it when it is replayed
            group["lr"] = torch.tensor(group["lr"], device=weight.device)
            group["capturable"] = True
    return made


def set_rate(made: Optimizer, factor: float) -> float:
    """Scale every group's highest rate, and return the first group's rate."""
    for group in made.param_groups:
        rate = group["peak"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    return float(made.param_groups[0]["peak"] * factor)


def adamw(model: nn.Module, config: OptimiserConfig, factor: Callable[[str], float]) -> Optimizer:
    """Decay on matrices, embeddings among them, but not on norms and biases: as the original."""
    # original: no bias correction of the moments; here it is on, and warm-up hides the difference
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    groups = _by_decay(weights, config.rate, config.decay, factor)
    return AdamW(groups, **_adam_options(weights.values(), config))


def muon(model: nn.Module, config: OptimiserConfig, factor: Callable[[str], float]) -> Optimizer:
    """Muon for the matrices of the blocks, AdamW for the rest."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    joined = {  # how many matrices lie in one weight
        f"{name}.{weight}": parts
        for name, module in model.named_modules()
        for kind, weight, parts in (
            (Attention, "qkv.weight", 3),
            (GatedFeedForward, "inner.weight", 2),
        )
        if isinstance(module, kind)
    }
    matrices: dict[tuple[float, int], list[nn.Parameter]] = {}
    rest: dict[str, nn.Parameter] = {}
    for name, weight in weights.items():
        if "blocks" in name.split(".") and weight.ndim == 2:  # noqa: PLR2004
            matrices.setdefault((factor(name), joined.get(name, 1)), []).append(weight)
        else:
            rest[name] = weight
    highest_first = sorted(matrices.items(), key=lambda one: (-one[0][0], one[0][1]))
    groups = [
        {"params": some, "lr": config.rate * scale, "weight_decay": config.decay, "parts": parts}
        for (scale, parts), some in highest_first
    ]
    groups += _by_decay(rest, config.other_rate, config.decay, factor)
    return Muon(groups, adam=_adam_options(rest.values(), config))


def _by_decay(
    weights: Mapping[str, nn.Parameter],
    rate: float,
    decay: float,
    factor: Callable[[str], float],
) -> list[dict[str, Any]]:
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, weight in weights.items():
        groups.setdefault((factor(name), weight.ndim > 1), []).append(weight)
    ordered = sorted(groups.items(), key=lambda one: (-one[0][0], not one[0][1]))
    return [
        {"params": some, "lr": rate * scale, "weight_decay": decay if is_matrix else 0.0}
        for (scale, is_matrix), some in ordered
    ]


def _adam_options(weights: Iterable[Tensor], config: OptimiserConfig) -> dict[str, Any]:
    fused = all(weight.device.type in _FUSED for weight in weights)
    return {"betas": config.betas, "eps": config.eps, "fused": fused}


OPTIMISERS: dict[
    Name, Callable[[nn.Module, OptimiserConfig, Callable[[str], float]], torch.optim.Optimizer]
] = {"adamw": adamw, "muon": muon}
