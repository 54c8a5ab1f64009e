"""Autoencoders of images: a small latent image, from which the picture can be decoded.

Rombach et al. 2022, §3.1: with a normal distribution that is kept close to the standard normal
(KL), or with vectors of a codebook (VQ; van den Oord et al. 2017).
b batch, c channels, y x positions of the latent, k codes.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.image_layers import Downsample, ResBlock, SourceAttention, Upsample

_LOG_VARIANCE = (-30.0, 20.0)  # limits, so that its exponential is finite


class Latent(NamedTuple):
    """The latent of an image, and the penalty of each image that keeps latents regular."""

    values: Tensor  # b c y x
    penalty: Tensor  # b


class PositionAttention(nn.Module):
    """x + attention over all positions, with one head."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.attention = SourceAttention(channels, 1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.attention(self.norm(x).flatten(2).transpose(1, 2))  # b n c
        return x + inner.transpose(1, 2).unflatten(2, x.shape[2:])


class KLBottleneck(nn.Module):
    """Mean and variance of each latent value; a sample of them while training, else the mean.

    The penalty is the divergence from the standard normal distribution, Kingma & Welling 2014, eq.
    10.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.moments = nn.Conv2d(2 * channels, 2 * channels, 1)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Latent:
        mean, log_variance = self.moments(x).chunk(2, 1)
        log_variance = log_variance.clamp(*_LOG_VARIANCE)
        divergence = mean.square() + log_variance.exp() - 1 - log_variance
        values = mean if noise is None else mean + (0.5 * log_variance).exp() * noise
        return Latent(values, 0.5 * divergence.flatten(1).sum(1))


class VQBottleneck(nn.Module):
    """The nearest vector of a codebook at each position; gradients pass straight through.

    The penalty is ‖sg(z) − e‖² + β·‖z − sg(e)‖², van den Oord et al. 2017, eq. 3.
    """

    def __init__(self, channels: int, codes: int, *, commitment: float = 0.25) -> None:
        super().__init__()
        self.codebook = nn.Embedding(codes, channels)
        self.project = nn.Conv2d(2 * channels, channels, 1)
        self.commitment = commitment

    def find_codes(self, values: Tensor) -> Tensor:
        """The index of the nearest vector of the codebook: b c y x -> b y x."""
        flat = values.movedim(1, -1)  # b y x c
        return torch.cdist(flat.flatten(0, 2), self.codebook.weight).argmin(-1).view(flat.shape[:3])

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Latent:  # noqa: ARG002
        values = self.project(x)
        found = self.codebook(self.find_codes(values)).movedim(-1, 1)  # b c y x
        to_codes = (found - values.detach()).square().flatten(1).sum(1)
        to_values = (values - found.detach()).square().flatten(1).sum(1)
        straight = values + (found - values).detach()
        return Latent(straight, to_codes + self.commitment * to_values)


class ImageEncoder(nn.Sequential):
    """From an image to 2 · `latent_channels` channels at a lower resolution."""

    def __init__(
        self, image_channels: int, channels: Sequence[int], latent_channels: int, *, groups: int
    ) -> None:
        parts: list[nn.Module] = [nn.Conv2d(image_channels, channels[0], 3, padding=1)]
        for index, (before, width) in enumerate(pairwise([channels[0], *channels])):
            parts += [ResBlock(before, width, groups=groups, norm_eps=1e-6)]
            parts += [Downsample(width)] if index + 1 < len(channels) else []
        last = channels[-1]
        parts += [PositionAttention(last, groups), ResBlock(last, last, groups=groups)]
        parts += [nn.GroupNorm(groups, last), nn.SiLU()]
        super().__init__(*parts, nn.Conv2d(last, 2 * latent_channels, 3, padding=1))


class ImageDecoder(nn.Sequential):
    """From a latent to an image."""

    def __init__(
        self, image_channels: int, channels: Sequence[int], latent_channels: int, *, groups: int
    ) -> None:
        last = channels[-1]
        parts: list[nn.Module] = [nn.Conv2d(latent_channels, last, 3, padding=1)]
        parts += [ResBlock(last, last, groups=groups), PositionAttention(last, groups)]
        for index, (before, width) in enumerate(pairwise([last, *reversed(channels)])):
            parts += [ResBlock(before, width, groups=groups, norm_eps=1e-6)]
            parts += [Upsample(width)] if index + 1 < len(channels) else []
        first = channels[0]
        parts += [nn.GroupNorm(groups, first), nn.SiLU()]
        super().__init__(*parts, nn.Conv2d(first, image_channels, 3, padding=1))


class ImageAutoencoder(nn.Module):
    """Encoder, bottleneck and decoder; latents are scaled to unit variance for diffusion."""

    def __init__(
        self,
        *,
        image_channels: int,
        channels: Sequence[int],
        latent_channels: int,
        codes: int = 0,
        groups: int = 32,
    ) -> None:
        super().__init__()
        self.encoder = ImageEncoder(image_channels, channels, latent_channels, groups=groups)
        self.bottleneck: KLBottleneck | VQBottleneck = (
            VQBottleneck(latent_channels, codes) if codes else KLBottleneck(latent_channels)
        )
        self.decoder = ImageDecoder(image_channels, channels, latent_channels, groups=groups)
        self.latent_channels, self.downsampling = latent_channels, 2 ** (len(channels) - 1)
        self.scale = nn.Parameter(torch.ones(()), requires_grad=False)  # set, not learned

    def reconstruct(self, images: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The decoded images, and the penalty of each: b c y x, b."""
        latent = self.bottleneck(self.encoder(images), noise)
        return self.decoder(latent.values), latent.penalty

    def encode(self, images: Tensor) -> Tensor:
        """Latents with about unit variance."""
        return self.bottleneck(self.encoder(images)).values * self.scale

    def decode(self, latents: Tensor) -> Tensor:
        """Images of latents; with a codebook each is replaced by its nearest vector first."""
        values = latents / self.scale
        if isinstance(self.bottleneck, VQBottleneck):
            codes = self.bottleneck.find_codes(values)
            values = self.bottleneck.codebook(codes).movedim(-1, 1)
        return self.decoder(values)

    @torch.no_grad()
    def set_scale(self, images: Tensor) -> None:
        """Set the scale, so that the latents of these images have a standard deviation of 1."""
        self.scale.fill_(1.0)
        self.scale.fill_(1 / self.encode(images).float().std().clamp(min=1e-6))


def reconstruction_error(found: Tensor, images: Tensor) -> Tensor:
    """|x − x̂| + (x − x̂)² of each image, summed over its values: b."""
    difference = (found - images).flatten(1)
    return difference.abs().sum(1) + F.mse_loss(found, images, reduction="none").flatten(1).sum(1)
