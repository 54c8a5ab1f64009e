"""Muon: momentum whose matrices are made orthogonal before they are applied.  Jordan et al. 2024.

The update of a matrix is the nearest one whose singular values are all about 1, so that rare
directions learn as fast as common ones. Embeddings, norms and biases have no such directions and go
to AdamW. r rows, c columns, k matrices of one shape.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

# of the quintic 3.4445 x − 4.7750 x³ + 2.0315 x⁵, which pushes singular values towards 1 in five
# rounds, and need not reach it
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5


class Muon(Optimizer):
    """Muon for the groups with "parts", AdamW for the others.

    "parts" says how many matrices lie in one weight, above each other: query, key and value are
    three. Both obey `found_inf`, the flag by which the guard holds a step back on the device.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, adam: dict[str, Any]) -> None:
        super().__init__(list(groups), {"parts": 0, "weight_decay": 0.0, "momentum": 0.95})
        self._adam = AdamW([nn.Parameter(torch.zeros(1))], **adam)
        for group in self.param_groups:
            if not group["parts"]:
                for name, value in self._adam.defaults.items():
                    group.setdefault(name, value)
        self._step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        bad: Tensor | None = getattr(self, "found_inf", None)
        for group in self.param_groups:
            if group["parts"]:
                self._orthogonal(group, bad)
        adam = self._adam
        adam.param_groups = [group for group in self.param_groups if not group["parts"]]
        adam.state = self.state
        adam.found_inf = bad  # type: ignore[attr-defined]
        adam.step()

    def _orthogonal(self, group: dict[str, Any], bad: Tensor | None) -> None:
        shapes: dict[torch.Size, list[Tensor]] = {}
        for weight in group["params"]:
            if weight.grad is not None:
                shapes.setdefault(weight.shape, []).append(weight)
        good = 1.0 if bad is None else 1.0 - bad
        for shape, weights in shapes.items():
            for weight in weights:
                if "momentum" not in self.state[weight]:
                    self.state[weight]["momentum"] = torch.zeros_like(weight)
            grads = [weight.grad for weight in weights if weight.grad is not None]
            if bad is not None:  # what is not finite would stay in the momentum
                grads = [torch.where(bad > 0, 0.0, grad) for grad in grads]
            moments = [self.state[weight]["momentum"] for weight in weights]
            torch._foreach_mul_(moments, group["momentum"] * good + (1 - good))
            torch._foreach_add_(moments, grads, alpha=1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, moments, group["momentum"])  # Nesterov
            stacked = torch.stack(ahead).unflatten(1, (group["parts"], -1)).flatten(0, 1)  # k r c
            updates = orthogonal(stacked).view(len(weights), *shape)
            # so that each entry moves about as far as AdamW's would, whatever the shape
            scale = max(1.0, stacked.shape[-2] / stacked.shape[-1]) ** 0.5
            rate = group["lr"] * good
            torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
            step = updates.to(weights[0].dtype) * (-scale * rate)
            torch._foreach_add_(weights, list(step.unbind(0)))


def orthogonal(matrices: Tensor) -> Tensor:
    """U·Vᵀ of each U·S·Vᵀ, nearly (k r c), by Newton–Schulz in bfloat16."""
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
