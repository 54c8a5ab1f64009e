"""What learns when replaced tokens are to be found: the model, a generator, and a head that tells.

Clark et al. 2020 (ELECTRA), §2 and §3.2. The generator and the head are there for training alone;
they lie in the training state and not in the model's folder.

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
    """A model that learns to tell which tokens a generator has replaced."""

    def __init__(self, model: Encoder, generator: Encoder, *, rng: torch.Generator) -> None:
        super().__init__()
        self.model = model
        self.generator = generator
        config = config_of(model)
        # Every head of a ModernBERT reads its one transform, and a fine-tuned head goes on with it.
        # The original has a layer for this head alone; a BERT has none that it could share.
        shared = model.transform if isinstance(model, ModernBert) else None
        self.transform = _own(config, rng) if shared is None else shared
        self.head = _linear(config.hidden_size, 1, config, rng)

    def suspicion(self, vectors: Tensor) -> Tensor:
        """For each vector of the model's last layer a score above 0 for "replaced", t."""
        return self.head(self.transform(vectors)).squeeze(-1)


class Narrowed(nn.Module):
    """The model's embeddings, brought to the width of a narrower generator."""

    def __init__(self, embeddings: Embeddings | WordEmbeddings, narrow: nn.Linear) -> None:
        super().__init__()
        self.wide = embeddings
        self.narrow = narrow
        self.word = embeddings.word  # the table that words are scored by

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        return self.narrow(self.wide(input_ids, token_type_ids, positions))  # t d -> t g


def detector(
    model: Encoder, *, layers: int | None, width: int | None, rng: torch.Generator
) -> Detector:
    """A model with a new generator of so many layers; unsaid, a quarter of the model's.

    Both have one table of embeddings (§3.2): the generator's task moves every word's vector, the
    model's only those of words it meets. A narrower generator reads it through a projection, and
    scores words through one back.
    """
    config = config_of(model)
    layers = max(1, config.num_layers // 4) if layers is None else layers
    shape = _smaller(config, layers, config.hidden_size if width is None else width)
    generator = build(shape, ["mlm"], rng=rng)
    if shape.hidden_size == config.hidden_size:
        generator.embeddings = model.embeddings
    else:
        narrow = _linear(config.hidden_size, shape.hidden_size, config, rng)
        generator.embeddings = Narrowed(model.embeddings, narrow)
        _widen(generator, config, rng)
    return Detector(model, generator, rng=rng)


def config_of(model: Encoder) -> EncoderConfig:
    """The shape that every family keeps."""
    config = model.config
    assert isinstance(config, EncoderConfig)
    return config


def _smaller(config: EncoderConfig, layers: int, width: int) -> EncoderConfig:
    """The same kind of model with fewer layers, or narrower with heads as wide as before."""
    each = config.hidden_size // config.num_heads
    in_range("generator_layers", layers, 1, config.num_layers)
    in_range("generator_width", width, each, config.hidden_size)
    if width % each:
        raise ConfigError(
            f"generator_width {width} does not split into heads of {each}, the model's",
            fix=f"use a multiple of {each}",
        )
    hidden = config.intermediate_size * width // config.hidden_size
    return replace(
        config,
        num_layers=layers,
        hidden_size=width,
        num_heads=width // each,
        intermediate_size=hidden,
        tie_embeddings=True,
    )


def _widen(generator: Encoder, config: EncoderConfig, rng: torch.Generator) -> None:
    """Let what comes before the word scores end in the width of the table, g -> d."""
    part = generator.transform if isinstance(generator, ModernBert) else generator.task_heads["mlm"]
    assert part is not None
    dense, norm = part.dense, part.norm
    assert isinstance(dense, nn.Linear)
    assert isinstance(norm, LayerNorm)
    bias = dense.bias is not None
    part.dense = _linear(dense.in_features, config.hidden_size, config, rng, bias=bias)
    part.norm = LayerNorm(config.hidden_size, eps=norm.eps, bias=norm.bias is not None)


def _own(config: EncoderConfig, rng: torch.Generator) -> HeadTransform:
    return HeadTransform(
        _linear(config.hidden_size, config.hidden_size, config, rng),
        ACTIVATIONS[config.activation],
        LayerNorm(config.hidden_size, eps=config.norm_eps),
    )


@torch.no_grad()
def _linear(
    inputs: int, outputs: int, config: EncoderConfig, rng: torch.Generator, *, bias: bool = True
) -> nn.Linear:
    """Drawn from `rng` and nothing else, as the model's own are."""
    made: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)
    made.weight.normal_(0.0, config.init_std, generator=rng)
    if bias:
        made.bias.zero_()
    return made
