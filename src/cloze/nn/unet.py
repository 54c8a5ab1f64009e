"""The U-shaped network of diffusion models.  Ronneberger et al. 2015; Rombach et al. 2022.

b batch, c channels, y x positions, s text tokens.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.image_layers import Downsample, ResBlock, SpatialTransformer, TimeEmbedding, Upsample


class Stage(nn.Module):
    """Blocks at one resolution, each followed by a transformer if there is one, then resampling."""

    def __init__(
        self,
        blocks: Sequence[ResBlock],
        transformers: Sequence[SpatialTransformer],
        resample: nn.Module | None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.transformers = nn.ModuleList(transformers)
        self.resample = resample

    def apply_block(
        self, index: int, x: Tensor, time: Tensor, text: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Block `index` and its transformer."""
        x = self.blocks[index](x, time)
        return self.transformers[index](x, text, mask) if self.transformers else x


class StageList(nn.ModuleList):
    """The stages of one way, down or up."""

    def __iter__(self) -> Iterator[Stage]:
        return cast("Iterator[Stage]", super().__iter__())


class UNet(nn.Module):
    """Predicts the noise in an image from the image, the noise level and the text.

    The output of every block on the way down is concatenated to the input of its counterpart on
    the way up (skip connections).
    """

    def __init__(  # noqa: PLR0913 (the shape of the network, all by keyword)
        self,
        *,
        image_channels: int,
        channels: Sequence[int],
        blocks_per_stage: int,
        attention_stages: Sequence[int],
        num_heads: int,
        text_size: int | None,
        groups: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        time_size = 4 * channels[0]

        def block(inputs: int, outputs: int) -> ResBlock:
            return ResBlock(inputs, outputs, groups=groups, time_size=time_size, dropout=dropout)

        def transformer(width: int) -> SpatialTransformer:
            return SpatialTransformer(width, num_heads, text_size, groups=groups)

        def stage(index: int, pairs: Sequence[tuple[int, int]], resample: type[nn.Module]) -> Stage:
            width = channels[index]
            has_attention = index in attention_stages
            is_end = index == (last if resample is Downsample else 0)
            return Stage(
                [block(*pair) for pair in pairs],
                [transformer(width) for _ in pairs] if has_attention else [],
                None if is_end else resample(width),
            )

        last, first = len(channels) - 1, channels[0]
        self.time = TimeEmbedding(first, time_size)
        self.conv_in = nn.Conv2d(image_channels, first, 3, padding=1)
        self.down = StageList()
        skips = [first]  # channels of what is kept for the way up
        for index, (before, width) in enumerate(pairwise([first, *channels])):
            pairs = [(before, width), *[(width, width)] * (blocks_per_stage - 1)]
            self.down.append(stage(index, pairs, Downsample))
            skips += [width] * (blocks_per_stage + (index < last))
        deepest = channels[-1]
        self.middle = Stage(
            [block(deepest, deepest), block(deepest, deepest)],
            [transformer(deepest)] if attention_stages else [],
            None,
        )
        self.up = StageList()
        before = deepest
        for index in reversed(range(len(channels))):
            width, pairs = channels[index], []
            for _ in range(blocks_per_stage + 1):
                pairs.append((before + skips.pop(), width))
                before = width
            self.up.append(stage(index, pairs, Upsample))
        self.norm_out = nn.GroupNorm(groups, first, eps=1e-5)
        self.conv_out = nn.Conv2d(first, image_channels, 3, padding=1)

    def forward(
        self, x: Tensor, times: Tensor, text: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """B c y x -> b c y x, at the time of each row, given its text (b s d) and mask (b s)."""
        time = self.time(times)
        x = self.conv_in(x)
        skips = [x]
        for stage in self.down:
            for index in range(len(stage.blocks)):
                x = stage.apply_block(index, x, time, text, mask)
                skips.append(x)
            if stage.resample is not None:
                x = stage.resample(x)
                skips.append(x)
        x = self.middle.blocks[0](x, time)
        for transformer in self.middle.transformers:
            x = transformer(x, text, mask)
        x = self.middle.blocks[1](x, time)
        for stage in self.up:
            for index in range(len(stage.blocks)):
                joined = torch.cat([x, skips.pop()], 1)
                x = stage.apply_block(index, joined, time, text, mask)
            if stage.resample is not None:
                x = stage.resample(x)
        return self.conv_out(F.silu(self.norm_out(x)))
