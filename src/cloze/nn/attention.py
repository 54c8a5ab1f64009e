"""Multi-head self-attention.  b batch, t tokens (n in a packed row), h heads, d head width."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.errors import ConfigError
from cloze.nn.dropout import dropout
from cloze.nn.masks import Allowed
from cloze.nn.packed import Packed
from cloze.nn.rotary import Turn, parted
from cloze.nn.varlen import Varlen, attend


def attention_weights(query: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
    """softmax(QKᵀ/√d), masked scores at −∞.  Vaswani et al. 2017, eq. 1."""
    scores = (query / query.shape[-1] ** 0.5) @ key.transpose(-2, -1)  # b h q k
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1)


class Attention(nn.Module):
    """softmax(QKᵀ/√d)·V in every head, then one projection of the heads side by side.

    Query, key and value come from one matrix, so that they are one product. The weights are
    never kept; whoever wants to see them asks `weights` (see `cloze.explain.capture`). With a
    `turn` queries and keys are rotated by their places.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, *, bias: bool = True) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(
                f"hidden_size {width} is not divisible by num_heads {heads}",
                fix=f"use a multiple of {heads}",
            )
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(
        self,
        x: Tensor,
        allowed: Allowed = None,
        turn: Turn | None = None,
        *,
        projected: bool = True,
    ) -> Tensor:
        """Without `projected` the heads side by side, as they are before `out`."""
        mixed = self._mixed(x, allowed, turn)
        return self.out(mixed) if projected else mixed

    def _mixed(self, x: Tensor, allowed: Allowed, turn: Turn | None) -> Tensor:
        if isinstance(allowed, Varlen):
            share = self.dropout if self.training else 0.0
            return attend(self._joined(x), allowed, turn, dropout=share).flatten(-2)
        parts = self._project(x, turn)
        if isinstance(allowed, Packed):
            return self._packed(parts, allowed)
        return self._attend(*parts, allowed)

    def weights(self, x: Tensor, allowed: Tensor | None = None, turn: Turn | None = None) -> Tensor:
        """The attention of every head, computed aloud: b h q k."""
        query, key, _ = self._project(x, turn)
        return attention_weights(query.transpose(-3, -2), key.transpose(-3, -2), allowed)

    def _project(self, x: Tensor, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each b t h d; or of a packed row n h d, one product for all."""
        return parted(self._joined(x), turn)

    def _joined(self, x: Tensor) -> Tensor:
        return self.qkv(x).unflatten(-1, (3 * self.heads, -1))  # b t 3h d

    def _packed(self, parts: tuple[Tensor, ...], packed: Packed) -> Tensor:
        sizes = [count * length for _, count, length in packed.runs]
        mixed = []
        runs = zip(*(part.split(sizes) for part in parts), strict=True)
        for run, (_, count, length) in zip(runs, packed.runs, strict=True):
            query, key, value = (part.unflatten(0, (count, length)) for part in run)  # b t h d
            mixed.append(self._attend(query, key, value, packed.allowed(length)).flatten(0, 1))
        return torch.cat(mixed)  # n (h d)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        query, key, value = (part.transpose(-3, -2) for part in (query, key, value))  # b h t d
        dropping = self.training and self.dropout > 0
        if dropping and query.device.type == "cpu":  # torch's kernel there knows no dropout
            weights = attention_weights(query, key, allowed)
            mixed = dropout(weights, self.dropout, training=True) @ value
        else:
            share = self.dropout if dropping else 0.0
            mixed = F.scaled_dot_product_attention(query, key, value, allowed, share)
        return mixed.transpose(-3, -2).flatten(-2)  # b h t d -> b t (h d)
