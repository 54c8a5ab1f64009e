"""Position encodings: sinusoidal, learned and rotary.

t tokens, h heads, d width; of rotary positions d is the head size.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import InputError

LAYOUTS = ("interleaved", "halves")
ROPE_THETA = 10_000.0  # the base of the rotary angles in the paper
_MIN_LENGTH = 512  # of a table; one that is too short is replaced by one of twice the length


def compute_sinusoids(length: int, hidden_size: int, layout: str = "interleaved") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same: t d.

    Vaswani et al. 2017, §3.5: sine and cosine interleaved. Their code, tensor2tensor, puts all
    sines in the first half and all cosines in the second, and ends at a wavelength of 10000 itself:
    "halves".
    """
    one_of("layout of sinusoids", layout, LAYOUTS)
    position = torch.arange(length, dtype=torch.float64)[:, None]
    pair = torch.arange(0, hidden_size, 2, dtype=torch.float64)
    table = torch.zeros(length, hidden_size, dtype=torch.float64)
    if layout == "halves":
        half = hidden_size // 2
        angle = position / 10000 ** (torch.arange(half, dtype=torch.float64) / max(half - 1, 1))
        table[:, :half], table[:, half : 2 * half] = angle.sin(), angle.cos()
    else:
        angle = position / 10000 ** (pair / hidden_size)  # t d/2
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : hidden_size // 2]
    return table.float()


class SinusoidalPositions(nn.Module):
    """Sinusoids of any position; the table is not a weight, and grows with the longest sequence."""

    max_positions: int | None = None

    def __init__(self, hidden_size: int, layout: str = "interleaved") -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.layout = one_of("layout of sinusoids", layout, LAYOUTS)
        self._table = torch.zeros(0, hidden_size, device="cpu")
        self._replaced: list[Tensor] = []  # recorded CUDA graphs keep reading these

    def forward(self, position_ids: Tensor, length: int) -> Tensor:
        """The vectors of positions below `length`."""
        if length > len(self._table) or self._table.device != position_ids.device:
            rounded = 1 << (max(length, len(self._table), _MIN_LENGTH) - 1).bit_length()
            self._replaced.append(self._table)
            # a table made under inference mode must serve training, too
            with torch.inference_mode(mode=False), torch.device("cpu"):
                table = compute_sinusoids(rounded, self.hidden_size, self.layout)
                self._table = table.to(position_ids.device)
        return self._table[position_ids]


class LearnedPositions(nn.Module):
    """A learned vector for each position, up to a maximum."""

    def __init__(self, max_positions: int, hidden_size: int) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.table = nn.Embedding(max_positions, hidden_size)

    def forward(self, position_ids: Tensor, length: int) -> Tensor:
        """The vectors of positions below `length`."""
        if length > self.max_positions:
            raise InputError(
                f"a sequence has {length} tokens, but the model has {self.max_positions} positions",
                fix="truncate it, or train with sinusoidal positions",
            )
        return self.table(position_ids)


class RotaryTable(NamedTuple):
    """The rotary angles of positions, as cosines and sines in float32."""

    cos: Tensor  # t d/2
    sin: Tensor  # t d/2

    def select(self, position_ids: Tensor) -> "RotaryTable":
        """The angles of these positions, which must be in the table."""
        return RotaryTable(self.cos[position_ids], self.sin[position_ids])


def compute_rotary_table(
    length: int, head_size: int, *, theta: float = ROPE_THETA, device: torch.device | None = None
) -> RotaryTable:
    """The angles m·theta^(−2i/d) of positions m = 0 … length−1.  Su et al. 2021, §3.2.2.

    Tables are not stored in the model: computing one takes little time, and it is exact on every
    device and in every precision.
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
