"""The vision transformer: blocks over the patches of an image.  Dosovitskiy et al. 2021.

b batch, y x positions, n patches, d width.
"""

import torch
from torch import Tensor, nn

from cloze.errors import InputError
from cloze.nn.attention import Attention
from cloze.nn.block import BlockList, FeedForward, PreNormBlock
from cloze.nn.context import AttentionContext
from cloze.nn.layers import Activation, LayerNorm


class VisionTransformer(nn.Module):
    """A class token and patches with learned positions, pre-norm blocks, the class token's vector.

    As in CLIP (Radford et al. 2021, §2.4) there is one more norm before the first block.
    """

    def __init__(  # noqa: PLR0913 (all by keyword)
        self,
        *,
        image_size: int,
        patch_size: int,
        hidden_size: int,
        num_layers: int,
        num_heads: int,
        intermediate_size: int,
        activation: Activation,
        attention_dropout: float = 0.0,
        norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.image_size = image_size
        self.patches = nn.Conv2d(3, hidden_size, patch_size, stride=patch_size, bias=False)
        self.class_token = nn.Parameter(torch.empty(hidden_size))
        self.position = nn.Embedding((image_size // patch_size) ** 2 + 1, hidden_size)
        self.norm_in = LayerNorm(hidden_size, eps=norm_eps)
        self.blocks = BlockList(
            PreNormBlock(
                Attention(hidden_size, num_heads, attention_dropout),
                FeedForward(hidden_size, intermediate_size, activation),
                attention_norm=LayerNorm(hidden_size, eps=norm_eps),
                ffn_norm=LayerNorm(hidden_size, eps=norm_eps),
                dropout=0.0,
                ffn_dropout=0.0,
            )
            for _ in range(num_layers)
        )
        self.norm = LayerNorm(hidden_size, eps=norm_eps)

    def forward(self, pixels: Tensor) -> Tensor:
        """The vector of each image: b 3 y x -> b d."""
        return self.norm(self.encode(pixels)[:, 0])

    def encode(self, pixels: Tensor) -> Tensor:
        """The last layer, before the final norm: b 3 y x -> b (1 + n) d."""
        check_image_size(pixels, self.image_size)
        patches = self.patches(pixels).flatten(2).transpose(1, 2)  # b d y x -> b n d
        first = self.class_token.to(patches.dtype).expand(len(patches), 1, -1)
        x = torch.cat([first, patches], 1) + self.position.weight
        x = self.norm_in(x)
        context = AttentionContext(None, max_seqlen=x.shape[1], device=x.device)
        for block in self.blocks:
            x = block(x, context)
        return x

    @torch.no_grad()
    def init_weights(self, init_std: float, rng: torch.Generator) -> None:
        """Weights from N(0, init_std²); what is added to the residual starts smaller, as in GPT-2.

        The class token is from N(0, 1/d).
        """
        self.class_token.normal_(0.0, len(self.class_token) ** -0.5, generator=rng)
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.fill_(1.0)
            elif isinstance(module, nn.Linear | nn.Embedding | nn.Conv2d):
                module.weight.normal_(0.0, init_std, generator=rng)
            if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
                bias.zero_()
        for block in self.blocks:
            for layer in (block.attention.out, block.ffn.down):
                layer.weight.mul_((2 * len(self.blocks)) ** -0.5)


def check_image_size(pixels: Tensor, image_size: int) -> None:
    """Raise unless images have the size that the model reads."""
    height, width = pixels.shape[-2:]
    if (height, width) != (image_size, image_size):
        raise InputError(
            f"the images have {width} × {height} pixels, but the model reads "
            f"{image_size} × {image_size}",
            fix="scale them first",
        )
