"""Attention with learned relative positions.

b batch, t tokens (n of a flat row), q queries, k keys, h heads, d head size, m distances.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.attention import Attention, KVCache, scaled_dot_product_attention
from cloze.nn.context import AttentionContext
from cloze.nn.layers import dropout
from cloze.nn.layout import FLAT, Packed


class RelativeAttention(Attention):
    """softmax((QKᵀ + S)/√d)·V with S[q, k] = Q_q·E[q − k].  Huang et al. 2018, eq. 3.

    Each head has a vector E for each distance to an earlier token (Shaw et al. 2018); those that
    are farther away than `max_distance` share the last one.
    """

    supports_varlen = False  # no kernel adds S

    def __init__(
        self, hidden_size: int, num_heads: int, dropout: float = 0.0, *, max_distance: int
    ) -> None:
        super().__init__(hidden_size, num_heads, dropout)
        self.distances = nn.Embedding(max_distance + 1, hidden_size)  # m (h d)

    def attend(
        self, qkv: Tensor, context: AttentionContext, cache: KVCache | None = None
    ) -> Tensor:
        """The concatenated heads from query, key and value: b t 3h d -> b t (h d)."""
        query, key, value = self.split_qkv(qkv, context)
        if cache is not None:
            key, value = cache.append(key, value)
        layout = context.layout
        if isinstance(layout, Packed):
            mixed = []
            for start, count, length in layout.runs:
                run = slice(start, start + count * length)
                q, k, v = (part[run].unflatten(0, (count, length)) for part in (query, key, value))
                bias = self._bias(q, None, context.run_mask(length, self.window_size))
                mixed.append(self._mix(q, k, v, bias).flatten(0, 1))
            return torch.cat(mixed)  # n (h d)
        if isinstance(layout, FLAT):  # one row without a batch axis
            q, k, v = (part[None] for part in (query, key, value))
            return self._mix(q, k, v, self._compute_bias(q, k, context))[0]
        return self._mix(query, key, value, self._compute_bias(query, key, context))

    def weights(self, x: Tensor, context: AttentionContext, cache: KVCache | None = None) -> Tensor:
        """The attention weights of every head: b h q k."""
        query, key, _ = self.compute_qkv(x, context, cache)
        return self._compute_weights(query, key, self._compute_bias(query, key, context))

    def _compute_run_weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        return self._compute_weights(query, key, self._bias(query, None, mask))

    def _compute_weights(self, query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
        query, key = query.transpose(-3, -2), key.transpose(-3, -2)
        return (query @ key.mT / query.shape[-1] ** 0.5 + bias).softmax(-1)

    def distance_vectors(self, count: int) -> Tensor:
        """The vectors E of the distances 0 … count − 1: h m d."""
        table = self.distances.weight.unflatten(-1, (self.num_heads, -1))  # m h d
        steps = torch.arange(count, device=table.device).clamp(max=len(table) - 1)
        return table[steps].transpose(0, 1)

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """The concatenated heads, b q (h d)."""
        query, key, value = (part.transpose(-3, -2) for part in (query, key, value))  # b h t d
        if self.training and self.dropout:
            weights = (query @ key.mT / query.shape[-1] ** 0.5 + bias).softmax(-1)
            heads = dropout(weights, self.dropout, training=True) @ value
        else:
            heads = scaled_dot_product_attention(query, key, value, bias)
        return heads.transpose(-3, -2).flatten(-2)

    def _compute_bias(self, query: Tensor, key: Tensor, context: AttentionContext) -> Tensor:
        mask = context.attn_mask(self.window_size)
        return self._bias(query, compute_distances(key, context), mask)

    def _bias(self, query: Tensor, distances: Tensor | None, mask: Tensor | None) -> Tensor:
        """S/√d, −∞ where a query may not attend to a key: b h q k.

        `distances` (b q k) may be None if queries and keys are the same tokens.
        """
        table = self.distances.weight.unflatten(-1, (self.num_heads, -1)).to(query.dtype)  # m h d
        scaled = query.transpose(-3, -2) / query.shape[-1] ** 0.5  # b h q d
        if distances is None:
            steps = torch.arange(query.shape[-3] - 1, -1, -1, device=query.device)
            by_distance = scaled @ table[steps.clamp(max=len(table) - 1)].permute(1, 2, 0)
            bias = skew(by_distance)
        else:
            by_distance = scaled @ table.permute(1, 2, 0)  # b h q m
            index = distances.clamp(0, len(table) - 1)[:, None]
            shape = (*by_distance.shape[:3], distances.shape[-1])
            bias = by_distance.gather(-1, index.expand(shape))
        return bias if mask is None else bias.masked_fill(~mask, -torch.inf)


def skew(by_distance: Tensor) -> Tensor:
    """From scores by distance to scores by key: … t t -> … t t.

    Column j of the input is the distance t − 1 − j, column k of the result the key k; results for
    keys after the query are arbitrary.  Huang et al. 2018, §3.4.1.
    """
    length = by_distance.shape[-1]
    padded = F.pad(by_distance, (1, 0)).flatten(-2)  # … t (t + 1)
    return padded[..., length:].unflatten(-1, (length, length))


def compute_distances(key: Tensor, context: AttentionContext) -> Tensor | None:
    """How many positions each key (b k …) is before each query: b q k.

    None if queries and keys are the same tokens. In a cache, rows may have padding between the
    prompt and its continuation: a key's position is the number of real tokens before it.
    """
    if isinstance(context.layout, FLAT):
        positions = context.layout.position_ids
        return (positions[:, None] - positions)[None]
    if context.position_ids is None:
        return None
    keys = torch.arange(key.shape[1], device=key.device)
    if isinstance(context.layout, Tensor):  # b 1 1 k
        keys = context.layout[:, 0, -1].cumsum(-1) - 1  # b k
    positions = context.position_ids.expand(len(key), -1)
    return positions[..., None] - keys.expand(len(key), -1)[:, None]
