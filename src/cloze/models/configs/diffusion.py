"""The configuration of a diffusion model of images.  Ho et al. 2020, Rombach et al. 2022."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import HiddenSize, ModelConfig, NumHeads, NumLayers, Probability
from cloze.models.configs.nested import NestedConfig

IMAGE_CHANNELS = 3
MAX_STAGES = 8
Backbone = Literal["unet", "dit"]
Channels = Annotated[tuple[int, ...], Help("Number of channels of each stage, from fine to coarse")]


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(ModelConfig):
    """The hyperparameters of a diffusion model in pixels, or in the latents of an autoencoder."""

    family: ClassVar[str] = "diffusion"
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "text")
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"channels": (32, 64), "autoencoder_channels": (16, 32), "blocks_per_stage": 1},
        "micro": {  # 14 MB in bfloat16
            "channels": (48, 96, 144),
            "autoencoder_channels": (24, 48, 72),
            "blocks_per_stage": 1,
        },
        "mini": {"channels": (64, 128, 192), "autoencoder_channels": (32, 64, 96)},
        "small": {"channels": (128, 256, 384), "autoencoder_channels": (64, 128, 128)},
    }

    image_size: Annotated[int, Range(8, 1 << 12), Help("Width and height of images in pixels")] = 64
    backbone: Annotated[Backbone, Help("Network that predicts the noise: unet or dit")] = "unet"
    channels: Channels = (64, 128, 192)
    blocks_per_stage: Annotated[int, Range(1, 16), Help("Residual blocks of each stage")] = 2
    finest_attention: Annotated[
        int, Range(0, MAX_STAGES), Help("First stage with attention, counted from 0 at the finest")
    ] = 1
    hidden_size: Annotated[HiddenSize, Help("DiT: width of the hidden states")] = 256
    num_layers: NumLayers = 8
    num_heads: NumHeads = 4
    patch_size: Annotated[int, Range(1, 64), Help("DiT: width and height of a patch")] = 2
    norm_groups: Annotated[int, Range(1, 1 << 10), Help("Groups of the group norms")] = 8
    dropout: Annotated[Probability, Help("Dropout probability in residual blocks")] = 0.0
    prediction: Annotated[
        Literal["noise", "velocity", "flow"],
        Help("What the network predicts; flow is flow matching"),
    ] = "velocity"
    betas: Annotated[
        Literal["linear", "scaled_linear", "cosine"], Help("Noise schedule, not of flow matching")
    ] = "cosine"
    latent_channels: Annotated[
        int, Range(0, 64), Help("Channels of the autoencoder's latents; 0: diffusion in pixels")
    ] = 4
    autoencoder_channels: Channels = (32, 64, 96)
    codebook_size: Annotated[
        int, Range(0, 1 << 20), Help("Vectors of the codebook (VQ); 0: normal distribution (KL)")
    ] = 0
    max_text_length: Annotated[int, Range(2, 512), Help("Longest caption in tokens")] = 77
    text: NestedConfig | None = None  # the text encoder; None: images without text

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("channels", "autoencoder_channels"):
            widths = getattr(self, name)
            if not 1 <= len(widths) <= MAX_STAGES or not all(1 <= w <= 1 << 13 for w in widths):
                raise ConfigError(f"{name} is {list(widths)}", fix="use 1 to 8 numbers of channels")
            if any(width % self.norm_groups for width in widths):
                raise ConfigError(
                    f"{name} is {list(widths)}, but norm_groups is {self.norm_groups}",
                    fix=f"use multiples of {self.norm_groups}",
                )
        self._check_sizes()

    def _check_sizes(self) -> None:
        size = self.image_size
        if self.latent_channels:
            size = _divide(size, 2 ** (len(self.autoencoder_channels) - 1), "the autoencoder")
        if self.backbone == "dit":
            _divide(size, self.patch_size, "the patches")
            if self.hidden_size % self.num_heads or self.hidden_size % 4:
                raise ConfigError(
                    f"hidden_size is {self.hidden_size}",
                    fix=f"use a multiple of 4 and of num_heads ({self.num_heads})",
                )
            return
        _divide(size, 2 ** (len(self.channels) - 1), "the stages of the UNet")
        if any(width % self.num_heads for width in self.channels[self.finest_attention :]):
            raise ConfigError(
                f"channels is {list(self.channels)}, but num_heads is {self.num_heads}",
                fix=f"use multiples of {self.num_heads}",
            )

    @property
    def reads_text(self) -> bool:
        """Whether images are drawn from texts."""
        return self.text is not None

    @property
    def longest_text(self) -> int:
        """The longest caption in tokens that the text encoder can read."""
        limit = getattr(self.text and self.text.config, "max_positions", self.max_text_length)
        return min(self.max_text_length, limit)

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what the network denoises: pixels or latents."""
        if not self.latent_channels:
            return IMAGE_CHANNELS, self.image_size, self.image_size
        size = self.image_size // 2 ** (len(self.autoencoder_channels) - 1)
        return self.latent_channels, size, size


def _divide(size: int, divisor: int, what: str) -> int:
    if size % divisor:
        raise ConfigError(
            f"image_size is not divisible as {what} need: {size} by {divisor}",
            fix=f"use a multiple of {divisor}, or fewer stages",
        )
    return size // divisor
