"""Muon: momentum with orthogonalised updates.  Jordan et al. 2024.

The update of a matrix is replaced by the nearest matrix whose singular values are all about 1, so
that rare directions are learned as fast as common ones. Embeddings, norms and biases are optimized
by AdamW. r rows, c columns, k matrices of one shape.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

# of the quintic 3.4445 x − 4.7750 x³ + 2.0315 x⁵, which brings singular values near 1 in five
# iterations
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon(Optimizer):
    """Muon for the groups with "parts", AdamW for the others.

    "parts" is the number of matrices stacked in one weight: three for query, key and value.
    Both obey `found_inf`, the flag by which the guard skips a step on the device.
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
                self._update_group(group, bad)
        adam = self._adam
        adam.param_groups = [group for group in self.param_groups if not group["parts"]]
        adam.state = self.state
        adam.found_inf = bad  # type: ignore[attr-defined]
        adam.step()

    def _update_group(self, group: dict[str, Any], bad: Tensor | None) -> None:
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
            if bad is not None:  # non-finite values would stay in the momentum
                grads = [torch.where(bad > 0, 0.0, grad) for grad in grads]
            moments = [self.state[weight]["momentum"] for weight in weights]
            torch._foreach_mul_(moments, group["momentum"] * good + (1 - good))
            torch._foreach_add_(moments, grads, alpha=1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, moments, group["momentum"])  # Nesterov
            stacked = torch.stack(ahead).unflatten(1, (group["parts"], -1)).flatten(0, 1)  # k r c
            updates = orthogonalize(stacked).view(len(weights), *shape)
            # so that an entry changes about as much as with AdamW, whatever the shape
            scale = max(1.0, stacked.shape[-2] / stacked.shape[-1]) ** 0.5
            lr = group["lr"] * good
            torch._foreach_mul_(weights, 1 - lr * group["weight_decay"])
            step = updates.to(weights[0].dtype) * (-scale * lr)
            torch._foreach_add_(weights, list(step.unbind(0)))


def orthogonalize(matrices: Tensor) -> Tensor:
    """Approximate U·Vᵀ of each U·S·Vᵀ (k r c) by Newton–Schulz iterations in bfloat16."""
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
