"""The configuration of CLIP: an image encoder and a text encoder.  Radford et al. 2021."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args

from cloze.config import Help, Range
from cloze.errors import ConfigError
from cloze.models.configs.base import (
    Activation,
    HiddenSize,
    IntermediateSize,
    ModelConfig,
    NumHeads,
    NumLayers,
    Probability,
    check_heads,
)
from cloze.models.configs.nested import NestedConfig

IMAGE_CHANNELS = 3
MAX_STAGES = 6
TEXT_ENCODER = "clip-text"  # the family of CLIP's own text encoder
MAX_LOGIT_SCALE = math.log(100.0)  # Radford et al. 2021, §2.5
_POOLERS = ("bert", "roberta", "xlm-roberta")  # families that have a pooler
TextPooling = Literal["mean", "cls", "pooler", "eos"]
Resampling = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]
RESAMPLINGS = get_args(Resampling)  # in the order of Pillow's numbers


@dataclass(frozen=True, kw_only=True)
class ClipConfig(ModelConfig):
    """The hyperparameters of a CLIP with any text encoder."""

    family: ClassVar[str] = "clip"
    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocab_size", "text")
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "hidden_size": 64,
            "num_layers": 2,
            "num_heads": 2,
            "intermediate_size": 256,
            "channels": (16, 32, 64),
            "blocks_per_stage": 1,
            "projection_size": 64,
        },
        "mini": {},
        "small": {
            "hidden_size": 384,
            "num_layers": 12,
            "num_heads": 6,
            "intermediate_size": 1536,
            "channels": (64, 128, 256, 384),
            "projection_size": 384,
        },
    }

    image_size: Annotated[int, Range(8, 1 << 12), Help("Width and height of images in pixels")] = 64
    vision: Annotated[Literal["vit", "resnet"], Help("Image encoder: vit or resnet")] = "vit"
    patch_size: Annotated[int, Range(1, 256), Help("ViT: width and height of a patch")] = 8
    hidden_size: Annotated[HiddenSize, Help("ViT: width of the hidden states")] = 256
    num_layers: NumLayers = 6
    num_heads: NumHeads = 4
    intermediate_size: IntermediateSize = 1024
    activation: Annotated[Activation, Help("ViT: activation of the feed-forward networks")] = "gelu"
    attention_dropout: Annotated[
        Probability, Help("ViT: dropout probability of the attention weights")
    ] = 0.0
    norm_eps: Annotated[float, Range(0, 1), Help("Epsilon of the layer norms")] = 1e-5
    init_std: Annotated[float, Range(0, 10), Help("Standard deviation of the initial weights")] = (
        0.02
    )
    channels: Annotated[
        tuple[int, ...], Help("ResNet: number of channels of each stage, from fine to coarse")
    ] = (32, 64, 128, 256)
    blocks_per_stage: Annotated[
        int, Range(1, 16), Help("ResNet: residual blocks of each stage")
    ] = 2
    norm_groups: Annotated[int, Range(1, 1 << 10), Help("ResNet: groups of the group norms")] = 8
    image_pooling: Annotated[
        Literal["attention", "mean"], Help("ResNet: how positions become one vector")
    ] = "attention"
    projection_size: Annotated[HiddenSize, Help("Size of the vectors of images and texts")] = 256
    image_mean: Annotated[tuple[float, ...], Help("Mean of red, green and blue, from 0 to 1")] = (
        0.48145466,
        0.4578275,
        0.40821073,
    )
    image_std: Annotated[tuple[float, ...], Help("Standard deviation of red, green and blue")] = (
        0.26862954,
        0.26130258,
        0.27577711,
    )
    resize: Annotated[
        Literal["pad", "crop", "squash"],
        Help("How images become square: pad with white, crop the center, or squash the whole"),
    ] = "pad"
    resampling: Annotated[
        Resampling, Help("Pillow's filter that scales images which are cropped or squashed")
    ] = "bicubic"
    init_logit_scale: Annotated[
        float, Range(-10, 10), Help("Initial logarithm of the factor of similarities")
    ] = math.log(1 / 0.07)
    text_pooling: Annotated[
        TextPooling,
        Help("Vector of a text: mean of its tokens, first token (cls, pooler) or end-of-text"),
    ] = "mean"
    max_text_length: Annotated[int, Range(2, 512), Help("Longest text in tokens")] = 77
    text: NestedConfig | None = None  # the text encoder

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vision == "vit":
            check_heads(self.hidden_size, self.num_heads)
            _check_divisible(self.image_size, self.patch_size, "patches")
        else:
            self._check_channels()
        for name in ("image_mean", "image_std"):
            values = getattr(self, name)
            allowed = Range(1e-6 if name == "image_std" else -1e3, 1e3)
            if len(values) != IMAGE_CHANNELS or not all(value in allowed for value in values):
                raise ConfigError(
                    f"{name} is {list(values)}", fix="use three numbers, for red, green and blue"
                )
        if self.text is not None:
            self._check_text(self.text.config)

    def _check_channels(self) -> None:
        widths = self.channels
        if not 1 <= len(widths) <= MAX_STAGES or not all(1 <= w <= 1 << 13 for w in widths):
            raise ConfigError(
                f"channels is {list(widths)}", fix=f"use 1 to {MAX_STAGES} numbers of channels"
            )
        if any(width % self.norm_groups for width in widths):
            raise ConfigError(
                f"channels is {list(widths)}, but norm_groups is {self.norm_groups}",
                fix=f"use multiples of {self.norm_groups}",
            )
        _check_divisible(self.image_size, 2 ** len(widths), "the stages of the ResNet")
        if self.image_pooling == "attention":
            check_heads(widths[-1], self.num_heads)

    def _check_text(self, text: ModelConfig) -> None:
        is_own, has_pooler = text.family == TEXT_ENCODER, text.family in _POOLERS
        if is_own != (self.text_pooling == "eos"):
            raise ConfigError(
                f"text_pooling is {self.text_pooling!r}, but the text encoder is {text.family}",
                fix=f'use "eos" for {TEXT_ENCODER}, and "mean" or "cls" for others',
            )
        if self.text_pooling == "pooler" and not has_pooler:
            raise ConfigError(
                f"text_pooling is 'pooler', but {text.family} has none", fix='use "mean" or "cls"'
            )
        if self.vocab_size != text.vocab_size:
            raise ConfigError(
                f"vocab_size is {self.vocab_size}, but that of the text encoder {text.vocab_size}",
                fix="use the same in both",
            )

    def check_complete(self) -> None:
        """Raise unless the vocabulary and the text encoder are known."""
        super().check_complete()
        if self.text is None:
            raise ConfigError("text is missing", fix="add the configuration of the text encoder")

    @property
    def max_positions(self) -> int:
        """The longest text in tokens."""
        limit = getattr(self.text and self.text.config, "max_positions", self.max_text_length)
        return min(self.max_text_length, limit)

    @property
    def image_vector_size(self) -> int:
        """The size of an image's vector before the projection."""
        return self.hidden_size if self.vision == "vit" else self.channels[-1]


def _check_divisible(size: int, divisor: int, what: str) -> None:
    if size % divisor:
        raise ConfigError(
            f"image_size is not divisible as {what} need: {size} by {divisor}",
            fix=f"use a multiple of {divisor}",
        )
