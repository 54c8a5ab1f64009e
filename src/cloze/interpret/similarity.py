"""Similarity of representations: linear CKA.  Kornblith et al. 2019.

n examples (tokens or words), d width, l layers of the first model, m of the second.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from cloze.errors import InputError

MIN_EXAMPLES = 4  # of the unbiased estimator


def compute_cka(first: Tensor, second: Tensor) -> float:
    """‖YᵀX‖² / (‖XᵀX‖·‖YᵀY‖) of centered X (n d) and Y (n e).  Kornblith et al. 2019, eq. 5."""
    x, y = (one.double() - one.double().mean(0) for one in (first, second))
    norm = (x.T @ x).norm() * (y.T @ y).norm()
    return float((y.T @ x).square().sum() / norm) if norm else float("nan")


class MinibatchCKA:
    """CKA of each two layers from minibatches, whose size bounds the memory.

    The sums over minibatches of the unbiased estimator HSIC₁ (Song et al. 2012, eq. 5) replace HSIC
    (Nguyen et al. 2021, eq. 2 and 3), so the result does not depend on the size of the
    minibatches but for noise, and few examples in many dimensions do not look similar.
    """

    def __init__(self, num_first: int, num_second: int | None = None) -> None:
        """For layers of one model (`num_second=None`) or of two."""
        second = num_first if num_second is None else num_second
        self._cross = torch.zeros(num_first, second, dtype=torch.float64)
        self._first = torch.zeros(num_first, dtype=torch.float64)
        self._second = torch.zeros(second, dtype=torch.float64)
        self.count = 0

    def update(self, first: Sequence[Tensor], second: Sequence[Tensor] | None = None) -> None:
        """Add the same examples in every layer: n d each; without `second` of one model."""
        a = _stack_grams(first)
        b = a if second is None else _stack_grams(second)
        if a.shape[-1] < MIN_EXAMPLES:
            raise InputError(
                f"a minibatch has {a.shape[-1]} examples", fix=f"use at least {MIN_EXAMPLES}"
            )
        self._cross += estimate_hsic(a[:, None], b[None]).cpu()
        self._first += estimate_hsic(a, a).cpu()
        self._second += estimate_hsic(b, b).cpu()
        self.count += a.shape[-1]

    def compute(self) -> Tensor:
        """The similarity of each two layers, l m, at most 1; NaN where a layer is constant."""
        scale = (self._first.clamp(min=0)[:, None] * self._second.clamp(min=0)).sqrt()
        return torch.where(scale > 0, self._cross / scale, torch.nan)


def _stack_grams(layers: Sequence[Tensor]) -> Tensor:
    """K = XXᵀ of each layer with a diagonal of zeros: l n n."""
    grams = []
    for layer in layers:
        x = layer.double() - layer.double().mean(0)  # HSIC₁ does not change, but is more accurate
        grams.append((x @ x.T).fill_diagonal_(0.0))
    return torch.stack(grams)


def estimate_hsic(k: Tensor, m: Tensor) -> Tensor:
    """The unbiased estimator HSIC₁ of Gram matrices with zero diagonals: … n n -> ….

    (tr(KM) + 1ᵀK1·1ᵀM1/((n−1)(n−2)) − 2·1ᵀKM1/(n−2)) / (n(n−3)).  Song et al. 2012, eq. 5.
    """
    n = k.shape[-1]
    k_sums, m_sums = k.sum(-1), m.sum(-1)  # … n
    trace = torch.einsum("...ij,...ij->...", k, m)
    totals = k_sums.sum(-1) * m_sums.sum(-1) / ((n - 1) * (n - 2))
    return (trace + totals - 2 * (k_sums * m_sums).sum(-1) / (n - 2)) / (n * (n - 3))
