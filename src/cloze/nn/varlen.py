"""A flat row of sequences whose bounds only the device knows, and attention within them.

n tokens in the row, b sequences, h heads, d head width.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cloze.errors import ConfigError
from cloze.nn import kernels
from cloze.nn.dropout import seed
from cloze.nn.rotary import Turn, parted


class Varlen(NamedTuple):
    """Who may look at whom: each token at its own sequence, up to `window` places away.

    Where it is `causal`, at no later place.

    Unlike `Packed` it has one shape whatever the lengths are, so that a compiled or recorded step
    fits every batch: `bounds` may end with sequences of no tokens.
    """

    bounds: Tensor  # b + 1, int32: where each sequence begins, and where the last one ends
    positions: Tensor  # n: 0, 1, 2 … within each sequence
    longest: int  # no sequence is longer
    window: int | None = None
    causal: bool = False

    def near(self, window: int) -> "Varlen":
        """The same row, where no one looks further than `window` places."""
        return self._replace(window=window)

    def past(self) -> "Varlen":
        """The same row, where no one looks ahead."""
        return self._replace(causal=True)


def attend(qkv: Tensor, row: Varlen, turn: Turn | None = None, *, dropout: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√d)·V within each sequence, n h d, of queries, keys and values n 3h d.

    `turn` has the angles of the places of a sequence. On a GPU one kernel does it, in bfloat16 or
    float16: our own up to `kernels.LONGEST` tokens, else flash attention (Dao 2023). Elsewhere the
    whole square of the row is computed and masked: right, and of use for small rows only.
    """
    if kernels.attends(qkv, row.longest):
        cos, sin = (qkv.new_empty(0), qkv.new_empty(0)) if turn is None else turn
        window = row.longest if row.window is None else row.window
        return torch.ops.cloze.attention(
            *(qkv, row.bounds, cos, sin, seed(qkv), row.longest, window, dropout, row.causal)
        )[0]
    query, key, value = parted(qkv, None if turn is None else turn.at(row.positions))
    if query.device.type != "cuda":
        return masked_attention(query, key, value, row, dropout)
    if query.dtype not in (torch.bfloat16, torch.float16):
        raise ConfigError(
            f"attention over a flat row on a GPU cannot be computed in {query.dtype}",
            fix="train in bf16 (--dtype bf16)",
        )
    side = -1 if row.window is None else row.window
    # the public function over this one has no dropout
    return torch.ops.aten._flash_attention_forward(
        *(query, key, value),
        *(row.bounds, row.bounds),
        *(row.longest, row.longest),
        dropout,
        row.causal,
        False,  # no weights to look at
        window_size_left=side,
        window_size_right=side,
    )[0]


def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, row: Varlen, dropout: float
) -> Tensor:
    """The same with a mask of n n: slow, and right wherever torch runs."""
    n = len(query)
    token = torch.arange(n, device=query.device)
    sequence = torch.searchsorted(row.bounds[1:].long(), token, right=True)
    allowed = sequence[:, None] == sequence  # n n
    if row.window is not None:
        allowed &= (token[:, None] - token).abs() <= row.window
    if row.causal:
        allowed &= token[:, None] >= token
    query, key, value = (part.transpose(0, 1) for part in (query, key, value))  # h n d
    return F.scaled_dot_product_attention(query, key, value, allowed, dropout).transpose(0, 1)
