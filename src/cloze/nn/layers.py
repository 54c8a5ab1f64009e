"""Activations, dropout and layer normalization."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]

_tanh_gelu: Activation = partial(F.gelu, approximate="tanh")


def quick_gelu(x: Tensor) -> Tensor:
    """An approximation of GELU that the published CLIPs use: x · sigmoid(1.702·x)."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Activation] = {  # by the names that published configurations use
    "gelu": F.gelu,
    "gelu_new": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}

_STEPS = 1 << 16  # of 16 random bits: p is exact to one in 65,536


class Dropout(nn.Module):
    """`dropout` as a module."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, training=self.training)


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """While training each element is zero with probability p, else scaled by 1/(1 − p).

    Srivastava et al. 2014.
    """
    if not training or p == 0.0:
        return x
    return x * _dropout_mask(x, p) if x.device.type == "cpu" else F.dropout(x, p)


def _dropout_mask(x: Tensor, p: float) -> Tensor:
    """Zero or 1/(1 − p), in the shape of x.

    On a CPU torch draws such masks on one core, with a double for each element. Drawing one 64-bit
    word for four elements is six times as fast; masks take a tenth of a small model's step.
    """
    dropped = round(p * _STEPS)
    if dropped == _STEPS:
        return torch.zeros_like(x)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    mask = torch.ge(bits, dropped - _STEPS // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return mask.mul_(_STEPS / (_STEPS - dropped))


def draw_seed(x: Tensor) -> Tensor:
    """One random integer on the device of x, for kernels that draw their own dropout masks."""
    return torch.randint(0, (1 << 31) - 1, (1,), dtype=torch.int32, device=x.device)


class LayerNorm(nn.LayerNorm):
    """(x − mean)/√(variance + ε)·w + b over the last axis.  Ba et al. 2016.

    Under autocast torch computes it in float32, as it should, but also returns float32, so that the
    residual stream takes twice the memory. Here the result has autocast's dtype.
    """

    def forward(self, x: Tensor) -> Tensor:
        return cast_to_autocast(super().forward(x))


class NoNorm(nn.Identity):
    """x itself, in autocast's dtype as the output of a `LayerNorm`: for embeddings without one."""

    def forward(self, x: Tensor) -> Tensor:
        return cast_to_autocast(x)


def cast_to_autocast(x: Tensor) -> Tensor:
    """X in autocast's dtype, if it is active."""
    device_type = x.device.type
    if torch.is_autocast_enabled(device_type):
        return x.to(torch.get_autocast_dtype(device_type))
    return x
