"""Layer normalisation that keeps to the precision around it."""

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """(x − mean)/√(variance + ε)·w + b over the last axis.  Ba et al. 2016.

    Under autocast torch computes it in float32, as it should, and hands float32 on, so that the sum
    of all layers is kept and moved in twice the bytes. Here what is handed on is in autocast's own
    precision.
    """

    def forward(self, x: Tensor) -> Tensor:
        normed = super().forward(x)
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            return normed.to(torch.get_autocast_dtype(kind))
        return normed
