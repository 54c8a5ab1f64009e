"""Where a token stands, as a vector."""

import torch
from torch import Tensor


def sinusoids(length: int, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same.

    Vaswani et al. 2017, §3.5: sine and cosine interleaved.
    """
    place = torch.arange(length, dtype=torch.float64)[:, None]
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    angle = place / 10000 ** (pair / width)  # t d/2
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table.float()  # t d
