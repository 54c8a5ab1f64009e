"""Where a token stands, as a vector."""

import torch
from torch import Tensor, nn

from cloze.config import one_of
from cloze.errors import InputError

LAYOUTS = ("interleaved", "halves")
_LEAST = 512  # places of a table; one that must grow doubles, so that it seldom must


def sinusoids(length: int, width: int, layout: str = "interleaved") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same.

    Vaswani et al. 2017, §3.5: sine and cosine interleaved. Their code, tensor2tensor, puts all
    sines in the first half and all cosines in the second, and ends at a wave of 10000 itself:
    "halves".
    """
    one_of("layout of the waves", layout, LAYOUTS)
    place = torch.arange(length, dtype=torch.float64)[:, None]
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    table = torch.zeros(length, width, dtype=torch.float64)
    if layout == "halves":
        half = width // 2
        angle = place / 10000 ** (torch.arange(half, dtype=torch.float64) / max(half - 1, 1))
        table[:, :half], table[:, half : 2 * half] = angle.sin(), angle.cos()
    else:
        angle = place / 10000 ** (pair / width)  # t d/2
        table[:, 0::2] = angle.sin()
        table[:, 1::2] = angle.cos()[:, : width // 2]
    return table.float()  # t d


class Sinusoids(nn.Module):
    """Waves for any place: the table is no weight, and grows when a longer text comes."""

    limit: int | None = None

    def __init__(self, width: int, layout: str = "interleaved") -> None:
        super().__init__()
        self.width, self.layout = width, one_of("layout of the waves", layout, LAYOUTS)
        self._table = torch.zeros(0, width, device="cpu")
        self._outgrown: list[Tensor] = []  # a GPU that recorded a step goes on reading these

    def forward(self, positions: Tensor, most: int) -> Tensor:
        """The vectors of places below `most`."""
        if most > len(self._table) or self._table.device != positions.device:
            length = 1 << (max(most, len(self._table), _LEAST) - 1).bit_length()
            self._outgrown.append(self._table)
            # a table made while translating must serve training, too
            with torch.inference_mode(mode=False), torch.device("cpu"):
                self._table = sinusoids(length, self.width, self.layout).to(positions.device)
        return self._table[positions]


class LearnedPositions(nn.Module):
    """A vector for each place, learned; there is none beyond the last."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.limit = count
        self.table = nn.Embedding(count, width)

    def forward(self, positions: Tensor, most: int) -> Tensor:
        """The vectors of places below `most`."""
        if most > self.limit:
            raise InputError(
                f"a sequence of {most} tokens, but the model has {self.limit} positions",
                fix="cut it, or train with sinusoidal positions",
            )
        return self.table(positions)
