"""A diffusion model of images, in pixels or in the latents of an autoencoder, guided by text.

Ho et al. 2020 (DDPM), Rombach et al. 2022 (latent diffusion), Peebles & Xie 2023 (DiT).
b batch, c channels, y x positions, s text tokens, d width of the text encoder.
"""

from functools import cached_property

import torch
from torch import Tensor, nn

from cloze.models.configs.diffusion import IMAGE_CHANNELS, DiffusionConfig
from cloze.models.registry import get_family
from cloze.nn.dit import DiT, DiTBlock
from cloze.nn.image_autoencoder import ImageAutoencoder, VQBottleneck
from cloze.nn.image_layers import ResBlock
from cloze.nn.noise_schedule import DiffusionSchedule, FlowSchedule, NoiseSchedule
from cloze.nn.unet import UNet


class Diffusion(nn.Module):
    """A network that predicts noise, an autoencoder or none, and a text encoder or none.

    The text encoder and, while the network is trained, the autoencoder are frozen.
    """

    def __init__(self, config: DiffusionConfig) -> None:
        super().__init__()
        self.config = config
        self.text_encoder = None
        if config.text is not None:
            found = get_family(config.text.config.family)
            self.text_encoder = found.module_class(config.text.config)
        self.autoencoder = (
            ImageAutoencoder(
                image_channels=IMAGE_CHANNELS,
                channels=config.autoencoder_channels,
                latent_channels=config.latent_channels,
                codes=config.codebook_size,
                groups=config.norm_groups,
            )
            if config.latent_channels
            else None
        )
        self.denoiser = _build_denoiser(config)

    @cached_property
    def schedule(self) -> NoiseSchedule:
        """The noise schedule, and what the network predicts."""
        if self.config.prediction == "flow":
            return FlowSchedule()
        return DiffusionSchedule.make(self.config.betas, self.config.prediction)

    def forward(
        self, x: Tensor, times: Tensor, text: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The prediction for noisy samples: b c y x."""
        return self.denoiser(x, times, text, mask)

    @torch.no_grad()
    def encode_text(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The last layer of the text encoder: b s -> b s d."""
        assert self.text_encoder is not None
        self.text_encoder.eval()
        return self.text_encoder(input_ids, attention_mask)

    @torch.no_grad()
    def encode_images(self, images: Tensor) -> Tensor:
        """What the network denoises, from pixels in [−1, 1]: the latents, or the pixels."""
        return images if self.autoencoder is None else self.autoencoder.encode(images)

    @torch.no_grad()
    def decode_images(self, samples: Tensor) -> Tensor:
        """Pixels in [−1, 1]."""
        found = samples if self.autoencoder is None else self.autoencoder.decode(samples)
        return found.clamp(-1, 1)

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Draw all weights; the last layers of residual branches start at zero.

        The weights of the text encoder are those of a trained model, which are copied afterwards.
        """
        own = [one for part in (self.autoencoder, self.denoiser) if part for one in part.modules()]
        for module in own:
            _init_layer(module, rng)
        for module in own:
            _zero_last_layers(module)
        if self.text_encoder is not None and self.config.text is not None:
            self.text_encoder.init_weights(self.config.text.config.init_std, rng)  # type: ignore[attr-defined]


def _init_layer(module: nn.Module, rng: torch.Generator) -> None:
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=rng)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.GroupNorm | nn.LayerNorm) and module.weight is not None:
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, VQBottleneck):
        bound = 1 / module.codebook.num_embeddings
        nn.init.uniform_(module.codebook.weight, -bound, bound, generator=rng)
    elif isinstance(module, ImageAutoencoder):
        module.scale.fill_(1.0)


def _zero_last_layers(module: nn.Module) -> None:
    layers: list[nn.Module] = []
    if isinstance(module, ResBlock):
        layers = [module.conv2]
    elif isinstance(module, DiTBlock):
        layers = [module.modulation]
        layers += [module.text_attention.out] if module.has_text else []
    elif isinstance(module, DiT):
        layers = [module.modulation, module.out]
    elif isinstance(module, UNet):
        layers = [module.conv_out]
    for layer in layers:
        for weight in layer.parameters():
            nn.init.zeros_(weight)


def _build_denoiser(config: DiffusionConfig) -> UNet | DiT:
    text_size = None if config.text is None else config.text.config.hidden_size  # type: ignore[attr-defined]
    channels = config.sample_shape[0]
    if config.backbone == "dit":
        return DiT(
            image_channels=channels,
            patch_size=config.patch_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            text_size=text_size,
        )
    return UNet(
        image_channels=channels,
        channels=config.channels,
        blocks_per_stage=config.blocks_per_stage,
        attention_stages=range(config.finest_attention, len(config.channels)),
        num_heads=config.num_heads,
        text_size=text_size,
        groups=config.norm_groups,
        dropout=config.dropout,
    )
