"""Layers of networks over images: residual blocks, attention over positions, changes of resolution.

b batch, c channels, y x positions, n = y·x, s source tokens, h heads, d head size.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.attention import check_heads, compute_attention
from cloze.nn.block import GatedFeedForward
from cloze.nn.layers import Dropout

_MAX_PERIOD = 10_000.0


def embed_times(times: Tensor, size: int) -> Tensor:
    """cos(t·w_i) and sin(t·w_i) with w_i = 10000^(−2i/size): b -> b size.  Ho et al. 2020."""
    half = size // 2
    exponents = torch.arange(half, dtype=torch.float32, device=times.device) / half
    angles = times[:, None].float() * torch.exp(-math.log(_MAX_PERIOD) * exponents)
    return torch.cat([angles.cos(), angles.sin()], -1)


class TimeEmbedding(nn.Module):
    """A vector for the noise level: two linear layers over `embed_times`."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.channels = channels
        self.up = nn.Linear(channels, size)
        self.out = nn.Linear(size, size)

    def forward(self, times: Tensor) -> Tensor:
        embedded = embed_times(times, self.channels).to(self.up.weight.dtype)
        return self.out(F.silu(self.up(embedded)))


class ResBlock(nn.Module):
    """skip(x) + conv(silu(norm(conv(silu(norm(x))) + time))).  Ho et al. 2020, appendix B."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        groups: int,
        time_size: int | None = None,
        dropout: float = 0.0,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, in_channels, eps=norm_eps)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.time = None if time_size is None else nn.Linear(time_size, out_channels)
        self.norm2 = nn.GroupNorm(groups, out_channels, eps=norm_eps)
        self.dropout = Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        is_same = in_channels == out_channels
        self.skip = nn.Identity() if is_same else nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        inner = self.conv1(F.silu(self.norm1(x)))  # b c y x
        if self.time is not None:
            assert time is not None
            inner = inner + self.time(F.silu(time))[:, :, None, None]
        inner = self.conv2(self.dropout(F.silu(self.norm2(inner))))
        return self.skip(x) + inner


class Downsample(nn.Conv2d):
    """A convolution with stride 2: half the resolution."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, stride=2, padding=1)


class Upsample(nn.Conv2d):
    """Each position twice in both directions, then a convolution: twice the resolution."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class SourceAttention(nn.Module):
    """Multi-head attention with queries from x, and keys and values from a source of any width.

    The source is x itself (self-attention), or the tokens of a text.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        source_size: int | None = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        check_heads(hidden_size, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.key_value = nn.Linear(source_size or hidden_size, 2 * hidden_size, bias=bias)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """B n c -> b n c; `mask` (b s) is True where a source token may be attended to."""
        query = self.query(x).unflatten(-1, (self.num_heads, -1))  # b n h d
        both = self.key_value(x if source is None else source)
        key, value = both.unflatten(-1, (2 * self.num_heads, -1)).chunk(2, -2)  # b s h d
        allowed = None if mask is None else mask[:, None, None, :]
        return self.out(compute_attention(query, key, value, allowed, 0.0))


class TextBlock(nn.Module):
    """Self-attention over positions, attention to the text, a gated feed-forward net; pre-norm."""

    def __init__(self, hidden_size: int, num_heads: int, text_size: int | None) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.attention = SourceAttention(hidden_size, num_heads)
        if text_size is not None:
            self.text_norm = nn.LayerNorm(hidden_size)
            self.text_attention = SourceAttention(hidden_size, num_heads, text_size)
        self.has_text = text_size is not None
        self.ffn_norm = nn.LayerNorm(hidden_size)
        self.ffn = GatedFeedForward(hidden_size, 4 * hidden_size, F.gelu)

    def forward(self, x: Tensor, text: Tensor | None, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x))  # b n c
        if self.has_text:
            x = x + self.text_attention(self.text_norm(x), text, mask)
        return x + self.ffn(self.ffn_norm(x))


class SpatialTransformer(nn.Module):
    """`TextBlock`s over the positions of an image, added to it.  Rombach et al. 2022."""

    def __init__(
        self, channels: int, num_heads: int, text_size: int | None, *, groups: int, depth: int = 1
    ) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.project_in = nn.Linear(channels, channels)
        self.blocks = nn.ModuleList(TextBlock(channels, num_heads, text_size) for _ in range(depth))
        self.project_out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, text: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        inner = self.project_in(self.norm(x).flatten(2).transpose(1, 2))  # b c y x -> b n c
        for block in self.blocks:
            inner = block(inner, text, mask)
        inner = self.project_out(inner).transpose(1, 2).unflatten(2, x.shape[2:])
        return x + inner
