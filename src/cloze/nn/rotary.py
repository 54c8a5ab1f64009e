"""Rotary positions: a place turns queries and keys.  t tokens, h heads, d head width."""

from typing import NamedTuple

import torch
from torch import Tensor

THETA = 10_000.0  # the base of the angles in the paper


class Turn(NamedTuple):
    """The angles of a row of places, as cosines and sines in float32."""

    cos: Tensor  # t d/2
    sin: Tensor  # t d/2

    def at(self, positions: Tensor) -> "Turn":
        """The same for other places, each within this row."""
        return Turn(self.cos[positions], self.sin[positions])


def turn_of(
    length: int, width: int, *, theta: float = THETA, device: torch.device | None = None
) -> Turn:
    """The angles m·theta^(−2i/d) of places m = 0 … length−1.  Su et al. 2021, §3.2.2.

    Nothing is kept: a table is a few thousandths of a layer's work, and one that does not exist is
    right on every device and in every precision.
    """
    pair = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    rate = theta ** (-pair / width)  # d/2
    place = torch.arange(length, dtype=torch.float32, device=device)
    angle = place[:, None] * rate  # t d/2
    return Turn(angle.cos(), angle.sin())


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """Each pair (xᵢ, xᵢ₊d/2) turned by its place's angle: … t h d.

    The product of a turned query and a turned key depends on their distance alone. The paper pairs
    neighbours (x₂ᵢ, x₂ᵢ₊₁); published models pair the halves, which is the same up to the order of
    a head's numbers.
    """
    first, second = x.chunk(2, -1)
    cos, sin = turn.cos.unsqueeze(-2), turn.sin.unsqueeze(-2)  # t 1 d/2, the same in every head
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    return turned.to(x.dtype)  # computed in float32 at least, as the table is


def parted(qkv: Tensor, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys, turned, and values: … t h d each, of … t 3h d."""
    query, key, value = qkv.chunk(3, -2)
    if turn is not None:
        both = qkv[..., : 2 * query.shape[-2], :]  # one pass over both
        query, key = rotate(both, turn).chunk(2, -2)
    return query, key, value
