"""Multi-head self-attention.  b batch, t tokens (n in a packed row), h heads, d head width."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.errors import ConfigError
from cloze.nn.dropout import dropout
from cloze.nn.masks import Allowed
from cloze.nn.packed import Packed


def attention_weights(query: Tensor, key: Tensor, allowed: Tensor | None) -> Tensor:
    """softmax(QKᵀ/√d), masked scores at −∞.  Vaswani et al. 2017, eq. 1."""
    scores = (query / query.shape[-1] ** 0.5) @ key.transpose(-2, -1)  # b h q k
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(-1)


class Attention(nn.Module):
    """softmax(QKᵀ/√d)·V in every head, then one projection of the heads side by side.

    Query, key and value come from one matrix, so that they are one product. The weights are
    never kept; whoever wants to see them asks `weights` (see `cloze.explain.capture`).
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(
                f"width {width} does not split into {heads} heads",
                fix=f"use a multiple of {heads}",
            )
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, allowed: Allowed = None) -> Tensor:
        mixed = self._packed(x, allowed) if isinstance(allowed, Packed) else self._mix(x, allowed)
        return self.out(mixed)

    def weights(self, x: Tensor, allowed: Tensor | None = None) -> Tensor:
        """The attention of every head, computed aloud: b h q k."""
        query, key, _ = self._split(self.qkv(x))
        return attention_weights(query, key, allowed)

    def _mix(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        return self._attend(self.qkv(x), allowed)

    def _packed(self, x: Tensor, packed: Packed) -> Tensor:
        qkv = self.qkv(x)  # n (3 h d): one product for all sequences, whatever their lengths
        runs = qkv.split([count * length for _, count, length in packed.runs])
        mixed = [
            self._attend(run.unflatten(0, (count, length))).flatten(0, 1)  # b t (h d) -> n (h d)
            for run, (_, count, length) in zip(runs, packed.runs, strict=True)
        ]
        return torch.cat(mixed)

    def _attend(self, qkv: Tensor, allowed: Tensor | None = None) -> Tensor:
        query, key, value = self._split(qkv)
        dropping = self.training and self.dropout > 0
        if dropping and qkv.device.type == "cpu":  # torch's kernel there knows no dropout
            weights = attention_weights(query, key, allowed)
            mixed = dropout(weights, self.dropout, training=True) @ value
        else:
            share = self.dropout if dropping else 0.0
            mixed = F.scaled_dot_product_attention(query, key, value, allowed, share)
        return mixed.transpose(-3, -2).flatten(-2)  # b h t d -> b t (h d)

    def _split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = qkv.unflatten(-1, (3, self.heads, -1)).unbind(-3)  # b t h d each
        return query.transpose(-3, -2), key.transpose(-3, -2), value.transpose(-3, -2)  # b h t d
