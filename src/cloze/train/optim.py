"""Optimisers, by name."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from cloze.config import number, one_of

_FUSED = ("cpu", "cuda", "mps", "xpu")  # where torch has AdamW as one kernel


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """The defaults are the paper's (Devlin et al. 2018, appendix A.2)."""

    name: str = "adamw"
    rate: float = 1e-4  # the highest; the schedule scales it
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    decay: float = 0.01

    def __post_init__(self) -> None:
        one_of("optimiser", self.name, OPTIMISERS)
        number("rate", self.rate, 0.0, 1e3)
        for beta in self.betas:
            number("betas", beta, 0.0, 1.0)
        number("eps", self.eps, 0.0, 1.0)
        number("decay", self.decay, 0.0, 1e3)


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
    return made


def set_rate(made: Optimizer, factor: float) -> float:
    """Scale every group's highest rate, and return the first group's rate."""
    for group in made.param_groups:
        group["lr"] = group["peak"] * factor
    return float(made.param_groups[0]["lr"])


def adamw(model: nn.Module, config: OptimiserConfig, factor: Callable[[str], float]) -> Optimizer:
    """Decay on matrices, embeddings among them, but not on norms and biases: as the original."""
    # original: no bias correction of the moments; here it is on, and warm-up hides the difference
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            groups.setdefault((factor(name), weight.ndim > 1), []).append(weight)
    return AdamW(
        [
            {
                "params": weights,
                "lr": config.rate * scale,
                "weight_decay": config.decay if is_matrix else 0.0,
            }
            for (scale, is_matrix), weights in sorted(groups.items(), key=_highest_first)
        ],
        betas=config.betas,
        eps=config.eps,
        fused=all(w.device.type in _FUSED for weights in groups.values() for w in weights),
    )


def _highest_first(group: tuple[tuple[float, bool], list[nn.Parameter]]) -> tuple[float, bool]:
    (scale, is_matrix), _ = group
    return -scale, not is_matrix


OPTIMISERS: dict[
    str, Callable[[nn.Module, OptimiserConfig, Callable[[str], float]], torch.optim.Optimizer]
] = {"adamw": adamw}
