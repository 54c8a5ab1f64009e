"""The diffusion transformer: blocks over patches of an image.  Peebles & Xie 2023.

b batch, c channels, n patches, d width, s text tokens.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.block import FeedForward
from cloze.nn.image_layers import SourceAttention, TimeEmbedding, embed_times
from cloze.nn.layers import ACTIVATIONS

_TIME_CHANNELS = 256


def embed_grid(height: int, width: int, size: int, *, device: torch.device) -> Tensor:
    """Sines and cosines of the row and of the column of each patch: (y x) d."""
    rows, columns = (torch.arange(count, device=device) for count in (height, width))
    half = size // 2
    by_row = embed_times(rows, half)[:, None].expand(-1, width, -1)
    by_column = embed_times(columns, half)[None].expand(height, -1, -1)
    return torch.cat([by_row, by_column], -1).flatten(0, 1)


class DiTBlock(nn.Module):
    """Self-attention, attention to the text, feed-forward net, modulated by the noise level.

    adaLN-Zero: shift, scale and gate of each sub-layer are linear in the embedding of the time, and
    zero at the beginning (`Diffusion.init_weights`), so that every block starts as the identity.
    """

    def __init__(self, hidden_size: int, num_heads: int, text_size: int | None) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.attention = SourceAttention(hidden_size, num_heads, bias=True)
        self.has_text = text_size is not None
        if text_size is not None:
            self.text_norm = nn.LayerNorm(hidden_size)
            self.text_attention = SourceAttention(hidden_size, num_heads, text_size)
        self.ffn_norm = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.ffn = FeedForward(hidden_size, 4 * hidden_size, ACTIVATIONS["gelu_new"])
        self.modulation = nn.Linear(hidden_size, 6 * hidden_size)

    def forward(self, x: Tensor, time: Tensor, text: Tensor | None, mask: Tensor | None) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(time))[:, None].chunk(
            6, -1
        )  # b 1 d each
        x = x + gate1 * self.attention(self.attention_norm(x) * (1 + scale1) + shift1)  # b n d
        if self.has_text:
            x = x + self.text_attention(self.text_norm(x), text, mask)
        return x + gate2 * self.ffn(self.ffn_norm(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """Predicts the noise in an image from its patches, the noise level and the text."""

    def __init__(
        self,
        *,
        image_channels: int,
        patch_size: int,
        hidden_size: int,
        num_layers: int,
        num_heads: int,
        text_size: int | None,
    ) -> None:
        super().__init__()
        self.patch_size, self.image_channels = patch_size, image_channels
        self.patches = nn.Conv2d(image_channels, hidden_size, patch_size, stride=patch_size)
        self.time = TimeEmbedding(_TIME_CHANNELS, hidden_size)
        self.blocks = nn.ModuleList(
            DiTBlock(hidden_size, num_heads, text_size) for _ in range(num_layers)
        )
        self.norm_out = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Linear(hidden_size, 2 * hidden_size)
        self.out = nn.Linear(hidden_size, patch_size**2 * image_channels)

    def forward(
        self, x: Tensor, times: Tensor, text: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """B c y x -> b c y x, at the time of each row, given its text (b s d) and mask (b s)."""
        time = self.time(times)
        patches = self.patches(x)  # b d y x
        height, width = patches.shape[2:]
        grid = embed_grid(height, width, patches.shape[1], device=x.device)
        tokens = patches.flatten(2).transpose(1, 2) + grid.to(patches.dtype)  # b n d
        for block in self.blocks:
            tokens = block(tokens, time, text, mask)
        shift, scale = self.modulation(F.silu(time))[:, None].chunk(2, -1)
        tokens = self.out(self.norm_out(tokens) * (1 + scale) + shift)  # b n (p p c)
        size = self.patch_size
        grid_shape = (height, width, size, size, self.image_channels)
        return (
            tokens.unflatten(-1, (size, size, -1))
            .view(-1, *grid_shape)
            .permute(0, 5, 1, 3, 2, 4)
            .reshape(x.shape)
        )  # b y x p q c -> b c (y p) (x q)
