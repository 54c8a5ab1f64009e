"""The module that is trained to detect replaced tokens: the model, a generator and a binary head.

Clark et al. 2020 (ELECTRA), §2 and §3.2. The generator and the head are for training only: they are
saved in the training state, and not in the model's folder.

t any leading axes, d width of the model, g width of the generator.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.models.build import build
from cloze.models.configs.encoder import EncoderConfig
from cloze.models.modernbert import ModernBert
from cloze.nn.embeddings import Embeddings, WordEmbeddings
from cloze.nn.encoder import Encoder
from cloze.nn.heads import HeadTransform
from cloze.nn.layers import ACTIVATIONS, LayerNorm


class Detector(nn.Module):
    """A model that classifies which tokens a generator has replaced."""

    def __init__(self, model: Encoder, generator: Encoder, *, rng: torch.Generator) -> None:
        super().__init__()
        self.model = model
        self.generator = generator
        config = get_config(model)
        # All heads of a ModernBERT share one transform, which also initializes fine-tuned heads.
        # ELECTRA has a layer for this head alone; so has a BERT here.
        shared = model.transform if isinstance(model, ModernBert) else None
        self.transform = _build_transform(config, rng) if shared is None else shared
        self.head = _build_linear(config.hidden_size, 1, config, rng)

    def discriminator_logits(self, vectors: Tensor) -> Tensor:
        """The logit of "replaced" for each vector of the model's last layer: t."""
        return self.head(self.transform(vectors)).squeeze(-1)


class NarrowedEmbeddings(nn.Module):
    """The model's embeddings, projected to the width of a narrower generator."""

    def __init__(self, embeddings: Embeddings | WordEmbeddings, narrow: nn.Linear) -> None:
        super().__init__()
        self.wide = embeddings
        self.narrow = narrow
        self.word = embeddings.word  # the table of the LM head

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        return self.narrow(self.wide(input_ids, token_type_ids, positions))  # t d -> t g


def build_detector(
    model: Encoder, *, num_layers: int | None, hidden_size: int | None, rng: torch.Generator
) -> Detector:
    """A model with a new generator of `layers` layers (default: a quarter of the model's).

    They share the token embeddings (§3.2): the generator's loss updates those of all tokens, the
    model's only those in its input. A narrower generator (`width`) projects them down, and back up
    before its LM head.
    """
    config = get_config(model)
    num_layers = max(1, config.num_layers // 4) if num_layers is None else num_layers
    generator_config = _make_generator_config(
        config, num_layers, config.hidden_size if hidden_size is None else hidden_size
    )
    generator = build(generator_config, ["mlm"], rng=rng)
    if generator_config.hidden_size == config.hidden_size:
        generator.embeddings = model.embeddings
    else:
        narrow = _build_linear(config.hidden_size, generator_config.hidden_size, config, rng)
        generator.embeddings = NarrowedEmbeddings(model.embeddings, narrow)
        _widen_transform(generator, config, rng)
    return Detector(model, generator, rng=rng)


def get_config(model: Encoder) -> EncoderConfig:
    """The configuration of an encoder."""
    config = model.config
    assert isinstance(config, EncoderConfig)
    return config


def _make_generator_config(config: EncoderConfig, layers: int, width: int) -> EncoderConfig:
    """A smaller configuration of the same family, with the same head size."""
    head_size = config.hidden_size // config.num_heads
    in_range("generator_num_layers", layers, 1, config.num_layers)
    in_range("generator_hidden_size", width, head_size, config.hidden_size)
    if width % head_size:
        raise ConfigError(
            f"generator_hidden_size {width} is not divisible by the model's head size {head_size}",
            fix=f"use a multiple of {head_size}",
        )
    intermediate_size = config.intermediate_size * width // config.hidden_size
    return replace(
        config,
        num_layers=layers,
        hidden_size=width,
        num_heads=width // head_size,
        intermediate_size=intermediate_size,
        tie_embeddings=True,
    )


def _widen_transform(generator: Encoder, config: EncoderConfig, rng: torch.Generator) -> None:
    """Make the transform before the LM head project to the size of the embeddings, g -> d."""
    heads = generator.task_heads
    transform = generator.transform if isinstance(generator, ModernBert) else heads["mlm"]
    assert transform is not None
    dense, norm = transform.dense, transform.norm
    assert isinstance(dense, nn.Linear)
    assert isinstance(norm, LayerNorm)
    bias = dense.bias is not None
    transform.dense = _build_linear(dense.in_features, config.hidden_size, config, rng, bias=bias)
    transform.norm = LayerNorm(config.hidden_size, eps=norm.eps, bias=norm.bias is not None)


def _build_transform(config: EncoderConfig, rng: torch.Generator) -> HeadTransform:
    return HeadTransform(
        _build_linear(config.hidden_size, config.hidden_size, config, rng),
        ACTIVATIONS[config.activation],
        LayerNorm(config.hidden_size, eps=config.norm_eps),
    )


@torch.no_grad()
def _build_linear(
    inputs: int, outputs: int, config: EncoderConfig, rng: torch.Generator, *, bias: bool = True
) -> nn.Linear:
    """A linear layer, initialized like those of the model, with `rng`."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)
    layer.weight.normal_(0.0, config.init_std, generator=rng)
    if bias:
        layer.bias.zero_()
    return layer
