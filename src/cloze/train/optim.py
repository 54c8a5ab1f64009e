"""Build optimizers: AdamW, Muon for the matrices of the blocks, and SGD."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from cloze.nn.attention import Attention, CrossAttention
from cloze.nn.block import GatedFeedForward
from cloze.train.config import OptimizerConfig, OptimizerName

Factor = Callable[[str], float]  # of the learning rate, by the name of a parameter
_FUSED = ("cpu", "cuda", "mps", "xpu")  # where torch has a fused AdamW


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, factor: Factor = lambda _: 1.0
) -> Optimizer:
    """The optimizer of a model whose weights are on the device that will train them.

    `factor` scales the learning rate of a parameter by its name, for layer-wise decay. Every group
    keeps its peak learning rate under "peak", for the schedule to scale.
    """
    optimizer = OPTIMIZERS[config.name](model, config, factor)
    for group in optimizer.param_groups:
        group["peak"] = group["lr"]
        weight = group["params"][0]
        if weight.device.type == "cuda":  # a tensor, so that a CUDA graph reads its current value
            group["lr"] = torch.tensor(group["lr"], device=weight.device)
            group["capturable"] = True
    return optimizer


def set_lr(optimizer: Optimizer, factor: float) -> float:
    """Scale every group's peak learning rate, and return the learning rate of the first group."""
    for group in optimizer.param_groups:
        lr = group["peak"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
    return float(optimizer.param_groups[0]["peak"] * factor)


def build_adamw(model: nn.Module, config: OptimizerConfig, factor: Factor) -> Optimizer:
    """Weight decay on matrices and embeddings, none on norms and biases, as in the original."""
    # original: no bias correction of the moments; here it is on: warm-up hides the difference
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    groups = _group_by_decay(weights, config.lr, config.weight_decay, factor)
    return AdamW(groups, **_adam_options(weights.values(), config))


def build_sgd(model: nn.Module, config: OptimizerConfig, factor: Factor) -> Optimizer:
    """Plain stochastic gradient descent; weight decay is an L2 penalty of matrices."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    groups = _group_by_decay(weights, config.lr, config.weight_decay, factor)
    fused = all(weight.device.type in ("cpu", "cuda") for weight in weights.values())
    return SGD(groups, lr=config.lr, fused=fused)


def build_muon(model: nn.Module, config: OptimizerConfig, factor: Factor) -> Optimizer:
    """Muon for the matrices of the blocks, AdamW for the rest."""
    from cloze.train.muon import Muon

    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    joined = {  # how many matrices are stacked in one weight
        f"{name}.{weight}": parts
        for name, module in model.named_modules()
        for kind, weight, parts in (
            (Attention | CrossAttention, "qkv.weight", 3),
            (GatedFeedForward, "up.weight", 2),
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
        {
            "params": some,
            "lr": config.lr * scale,
            "weight_decay": config.weight_decay,
            "parts": parts,
        }
        for (scale, parts), some in highest_first
    ]
    groups += _group_by_decay(rest, config.adamw_lr, config.weight_decay, factor)
    return Muon(groups, adam=_adam_options(rest.values(), config))


def _group_by_decay(
    weights: Mapping[str, nn.Parameter],
    lr: float,
    weight_decay: float,
    factor: Factor,
) -> list[dict[str, Any]]:
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, weight in weights.items():
        groups.setdefault((factor(name), weight.ndim > 1), []).append(weight)
    ordered = sorted(groups.items(), key=lambda one: (-one[0][0], not one[0][1]))
    return [
        {"params": some, "lr": lr * scale, "weight_decay": weight_decay if is_matrix else 0.0}
        for (scale, is_matrix), some in ordered
    ]


def _adam_options(weights: Iterable[Tensor], config: OptimizerConfig) -> dict[str, Any]:
    fused = all(weight.device.type in _FUSED for weight in weights)
    return {"betas": config.betas, "eps": config.eps, "fused": fused}


OPTIMIZERS: dict[
    OptimizerName,
    Callable[[nn.Module, OptimizerConfig, Callable[[str], float]], torch.optim.Optimizer],
] = {"adamw": build_adamw, "muon": build_muon, "sgd": build_sgd}
