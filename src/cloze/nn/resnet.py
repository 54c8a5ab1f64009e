"""A small residual network over images.  He et al. 2016; pooling of Radford et al. 2021, §2.4.

b batch, c channels, y x positions, n = y·x.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.image_layers import Downsample, ResBlock, SourceAttention
from cloze.nn.vit import check_image_size


class AttentionPool(nn.Module):
    """One layer of attention whose query is the mean over the positions: b c y x -> b c."""

    def __init__(self, channels: int, num_heads: int, num_positions: int) -> None:
        super().__init__()
        self.position = nn.Embedding(num_positions + 1, channels)
        self.attention = SourceAttention(channels, num_heads, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)  # b n c
        tokens = torch.cat([tokens.mean(1, keepdim=True), tokens], 1) + self.position.weight
        return self.attention(tokens[:, :1], tokens)[:, 0]


class ResNet(nn.Module):
    """Stages of residual blocks with half the resolution each, then one vector per image.

    The blocks are those of the diffusion models (group norm before each convolution), so that no
    statistics of a batch are needed.
    """

    def __init__(
        self,
        *,
        image_size: int,
        channels: Sequence[int],
        blocks_per_stage: int,
        groups: int,
        num_heads: int,
        pooling: str,
    ) -> None:
        super().__init__()
        self.image_size = image_size
        self.conv_in = nn.Conv2d(3, channels[0], 3, stride=2, padding=1)
        stages: list[nn.Module] = []
        width = channels[0]
        for number, size in enumerate(channels):
            stages += [Downsample(width)] if number else []
            for _ in range(blocks_per_stage):
                stages.append(ResBlock(width, size, groups=groups))
                width = size
        self.stages = nn.Sequential(*stages)
        self.norm = nn.GroupNorm(groups, width)
        positions = (image_size // 2 ** len(channels)) ** 2
        self.pool = AttentionPool(width, num_heads, positions) if pooling == "attention" else None

    def forward(self, pixels: Tensor) -> Tensor:
        """The vector of each image: b 3 y x -> b c."""
        check_image_size(pixels, self.image_size)
        x = F.silu(self.norm(self.stages(self.conv_in(pixels))))  # b c y x
        return x.mean((2, 3)) if self.pool is None else self.pool(x)

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Convolutions as He et al. 2015; those that end a residual branch are zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=rng)
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, init_std, generator=rng)
            elif isinstance(module, nn.GroupNorm):
                module.weight.fill_(1.0)
            if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
                bias.zero_()
        for module in self.modules():
            if isinstance(module, ResBlock):
                module.conv2.weight.zero_()
