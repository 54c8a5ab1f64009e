"""Blocks of an encoder–decoder: who looks at what, and what is remembered from step to step.

b batch, t target tokens, s source tokens, h heads, d head width.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.attention import Attention, attention_weights
from cloze.nn.blocks import FeedForward, normed_sum
from cloze.nn.dropout import Dropout
from cloze.nn.norm import LayerNorm


class Memory(NamedTuple):
    """What attention looks at: keys and values. These alone are worth remembering."""

    key: Tensor  # b s h d
    value: Tensor  # b s h d

    def rows(self, chosen: Tensor) -> "Memory":
        """Of other rows of the batch."""
        return Memory(self.key.index_select(0, chosen), self.value.index_select(0, chosen))


class SelfAttention(Attention):
    """Attention that can also go one token at a time, with the keys and values so far."""

    def step(self, x: Tensor, past: Memory | None) -> tuple[Tensor, Memory]:
        """One more token of each sequence (b 1 d), which looks at itself and all before it."""
        query, key, value = self._project(x, None)
        if past is not None:
            key, value = torch.cat([past.key, key], 1), torch.cat([past.value, value], 1)
        return self.out(self._attend(query, key, value, None)), Memory(key, value)


class CrossAttention(Attention):
    """Queries from the decoder, keys and values from the encoder's top.

    Vaswani et al. 2017, §3.2.3. The three matrices lie in one, as in self-attention.
    """

    def memory(self, source: Tensor) -> Memory:
        """Keys and values of the source, computed once for all steps."""
        width = self.out.in_features
        both = F.linear(source, self.qkv.weight[width:], self.qkv.bias[width:])
        return Memory(*both.unflatten(-1, (2 * self.heads, -1)).chunk(2, -2))  # b s h d each

    def forward(self, x: Tensor, memory: Memory, allowed: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return self.out(self._attend(self._query(x), *memory, allowed))

    def weights(self, x: Tensor, memory: Memory, allowed: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """What each target token takes from each source token: b h t s."""
        query, key = self._query(x).transpose(-3, -2), memory.key.transpose(-3, -2)
        return attention_weights(query, key, allowed)

    def _query(self, x: Tensor) -> Tensor:
        width = self.out.in_features
        query = F.linear(x, self.qkv.weight[:width], self.qkv.bias[:width])
        return query.unflatten(-1, (self.heads, -1))  # b t h d


class PostNorm(nn.Module):
    """LayerNorm(x + Sublayer(x)): the paper's."""

    def __init__(self, width: int, *, dropout: float, norm_eps: float) -> None:
        super().__init__()
        self.norm = LayerNorm(width, eps=norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return normed_sum(x, sublayer(x), self.norm, self.dropout)


class PreNorm(PostNorm):
    """x + Sublayer(LayerNorm(x)): learns without warm-up (Xiong et al. 2020)."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


Residual = Callable[[], PostNorm]
"""Makes what goes around a sub-layer."""


class EncoderBlock(nn.Module):
    """Self-attention, then the feed-forward net."""

    def __init__(self, attention: Attention, feed_forward: FeedForward, residual: Residual) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, residual()
        self.feed_forward, self.feed_forward_residual = feed_forward, residual()

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        x = self.attention_residual(x, lambda y: self.attention(y, allowed))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderBlock(nn.Module):
    """Masked self-attention, attention to the source, then the feed-forward net."""

    def __init__(
        self,
        attention: SelfAttention,
        cross: CrossAttention,
        feed_forward: FeedForward,
        residual: Residual,
    ) -> None:
        super().__init__()
        self.attention, self.attention_residual = attention, residual()
        self.cross, self.cross_residual = cross, residual()
        self.feed_forward, self.feed_forward_residual = feed_forward, residual()

    def forward(self, x: Tensor, causal: Tensor, memory: Memory, real: Tensor) -> Tensor:
        """All target tokens at once, each looking at none after it."""
        x = self.attention_residual(x, lambda y: self.attention(y, causal))
        return self._rest(x, memory, real)

    def look(self, source: Tensor) -> Memory:
        """Keys and values of the encoder's top, which serve all steps."""
        return self.cross.memory(source)

    def step(
        self, x: Tensor, past: Memory | None, memory: Memory, real: Tensor
    ) -> tuple[Tensor, Memory]:
        """The next token alone (b 1 d), and what it adds to the past.

        There may be fewer sources than rows: then as many rows, beside each other, share each.
        """
        kept: list[Memory] = []

        def look(y: Tensor) -> Tensor:
            mixed, seen = self.attention.step(y, past)
            kept.append(seen)
            return mixed

        x = self.attention_residual(x, look)
        # the rows of a sentence ask its source side by side, like the tokens of one row
        x = self._rest(x.view(len(memory.key), -1, x.shape[-1]), memory, real)
        return x.flatten(0, 1).unsqueeze(1), kept[0]

    def _rest(self, x: Tensor, memory: Memory, real: Tensor) -> Tensor:
        x = self.cross_residual(x, lambda y: self.cross(y, memory, real))
        return self.feed_forward_residual(x, self.feed_forward)
