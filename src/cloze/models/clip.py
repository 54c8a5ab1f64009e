"""CLIP: an image encoder and a text encoder whose vectors can be compared.  Radford et al. 2021.

b images, s tokens of a text, t texts, y x positions, d size of the vectors.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.models.build import pooler_option
from cloze.models.configs.clip import MAX_LOGIT_SCALE, ClipConfig
from cloze.models.configs.clip_text import ClipTextConfig
from cloze.models.registry import get_family
from cloze.nn.layers import ACTIVATIONS
from cloze.nn.pooling import pool_masked
from cloze.nn.resnet import ResNet
from cloze.nn.vit import VisionTransformer

_MIDDLE = 127.5  # of the values of a pixel


class Clip(nn.Module):
    """Two encoders with a projection each, and the learned factor of the similarities."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        assert config.text is not None
        self.config = config
        text = config.text.config
        parts = pooler_option(text, has_pooler=config.text_pooling == "pooler")
        self.text_encoder = get_family(text.family).module_class(text, **parts)
        self.vision_encoder = _build_vision_encoder(config)
        size = config.projection_size
        self.text_projection = nn.Linear(text.hidden_size, size, bias=False)  # type: ignore[attr-defined]
        self.image_projection = nn.Linear(config.image_vector_size, size, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(config.init_logit_scale))

    def forward(
        self, input_ids: Tensor, pixels: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """The logits of each text for each image, e^logit_scale · cos(image, text): b t.

        Pixels are those that `normalize_pixels` gives.
        """
        images = F.normalize(self.embed_images(pixels), dim=-1)
        texts = F.normalize(self.embed_texts(input_ids, attention_mask), dim=-1)
        return self.logit_scale.exp() * images @ texts.T

    def embed_texts(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The projected vectors of texts, not normalized: t s -> t d.

        The padding, where `attention_mask` is False, follows the text.
        """
        hidden = self.text_encoder(input_ids, attention_mask)  # t s d
        return self.text_projection(self._pool_texts(hidden, input_ids, attention_mask))

    def embed_images(self, pixels: Tensor) -> Tensor:
        """The projected vectors of images, not normalized: b 3 y x -> b d."""
        return self.image_projection(self.vision_encoder(pixels))

    def normalize_pixels(self, images: Tensor) -> Tensor:
        """What `embed_images` reads, from values of 0 … 255: b y x 3 -> b 3 y x."""
        return self.standardize(images.permute(0, 3, 1, 2).float() / _MIDDLE - 1)

    def standardize(self, images: Tensor) -> Tensor:
        """The same from values in [−1, 1]: (x − mean) / std, b 3 y x."""
        mean, std = (
            torch.tensor(values, dtype=torch.float32, device=images.device)[:, None, None]
            for values in (self.config.image_mean, self.config.image_std)
        )
        return ((images - (2 * mean - 1)) / (2 * std)).to(self.logit_scale.dtype)

    @property
    def text_size(self) -> int:
        """The width of the text encoder."""
        return self.text_projection.in_features

    @torch.no_grad()
    def clamp_logit_scale(self) -> None:
        """Keep the factor of the similarities at 100 or less, for stable training."""
        self.logit_scale.clamp_(max=MAX_LOGIT_SCALE)

    @torch.no_grad()
    def init_weights(self, rng: torch.Generator) -> None:
        """Draw all weights; those of a trained text encoder are copied afterwards."""
        assert self.config.text is not None
        self.text_encoder.init_weights(self.config.text.config.init_std, rng)  # type: ignore[attr-defined]
        self.vision_encoder.init_weights(self.config.init_std, rng)
        for projection in (self.text_projection, self.image_projection):
            projection.weight.normal_(0.0, projection.in_features**-0.5, generator=rng)
        self.logit_scale.fill_(self.config.init_logit_scale)

    def _pool_texts(self, hidden: Tensor, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        pooling = self.config.text_pooling
        if pooling == "pooler":
            return self.text_encoder.pooler(hidden[:, 0])
        if pooling == "eos":
            rows = torch.arange(len(hidden), device=hidden.device)
            if (index := self._find_end(input_ids)) is not None:
                return hidden[rows, index]
        length = (
            torch.full(hidden.shape[:1], hidden.shape[1], device=hidden.device)
            if mask is None
            else mask.long().sum(1)
        )
        mode = "lasttoken" if pooling == "eos" else pooling
        exact = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        return pool_masked(exact, length, (mode,), normalize=False).to(hidden.dtype)

    def _find_end(self, input_ids: Tensor) -> Tensor | None:
        """The position of the first end-of-text token of each text; None: of the last token.

        In early configurations, which name token 2 instead, it is the token with the highest id.
        """
        assert self.config.text is not None
        text = self.config.text.config
        assert isinstance(text, ClipTextConfig)
        if text.end_of_text_id is None:
            return None
        if text.end_of_text_id == ClipTextConfig.LEGACY_END_ID:
            return input_ids.argmax(-1)
        return (input_ids == text.end_of_text_id).int().argmax(-1)


def _build_vision_encoder(config: ClipConfig) -> VisionTransformer | ResNet:
    if config.vision == "vit":
        return VisionTransformer(
            image_size=config.image_size,
            patch_size=config.patch_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            intermediate_size=config.intermediate_size,
            activation=ACTIVATIONS[config.activation],
            attention_dropout=config.attention_dropout,
            norm_eps=config.norm_eps,
        )
    return ResNet(
        image_size=config.image_size,
        channels=config.channels,
        blocks_per_stage=config.blocks_per_stage,
        groups=config.norm_groups,
        num_heads=config.num_heads,
        pooling=config.image_pooling,
    )
