"""Rotary positions: they rotate queries and keys.  t tokens, h heads, d head size."""

from typing import NamedTuple

import torch
from torch import Tensor

THETA = 10_000.0  # the base of the angles in the paper


class RotaryTable(NamedTuple):
    """The angles of a row of positions, as cosines and sines in float32."""

    cos: Tensor  # t d/2
    sin: Tensor  # t d/2

    def select(self, position_ids: Tensor) -> "RotaryTable":
        """The angles of other positions, each within this row."""
        return RotaryTable(self.cos[position_ids], self.sin[position_ids])


def compute_rotary_table(
    length: int, head_size: int, *, theta: float = THETA, device: torch.device | None = None
) -> RotaryTable:
    """The angles m·theta^(−2i/d) of positions m = 0 … length−1.  Su et al. 2021, §3.2.2.

    Tables are not stored in the model: computing one costs a few thousandths of a layer, and it is
    then right on every device and in every precision.
    """
    pair = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    frequency = theta ** (-pair / head_size)  # d/2
    position = torch.arange(length, dtype=torch.float32, device=device)
    angle = position[:, None] * frequency  # t d/2
    return RotaryTable(angle.cos(), angle.sin())


def apply_rotary(x: Tensor, table: RotaryTable) -> Tensor:
    """Rotate each pair (xᵢ, xᵢ₊d/2) by the angle of its position: … t h d.

    The product of a rotated query and a rotated key depends on their distance alone. The paper
    pairs neighbours (x₂ᵢ, x₂ᵢ₊₁); published models pair the halves, which is the same up to the
    order of a head's elements.
    """
    first, second = x.chunk(2, -1)
    cos, sin = table.cos.unsqueeze(-2), table.sin.unsqueeze(-2)  # t 1 d/2, the same in every head
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    return rotated.to(x.dtype)  # computed in float32 at least, as the table is
