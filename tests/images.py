"""Tiny models of images, and drawings to train them on."""

import base64
import io
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from PIL import Image

from cloze.checkpoint.model import Model
from cloze.data.images.augment import Augmentation
from cloze.data.images.drawings import make_drawing
from cloze.data.images.image_set import ImageSet
from cloze.data.images.image_text_batch import CLIP_LOSS, ImageTextBatches
from cloze.data.images.read import ImageExample
from cloze.models.configs.clip import ClipConfig
from cloze.models.configs.diffusion import DiffusionConfig
from cloze.models.configs.nested import NestedConfig
from helpers import PIECES, scramble, tiny_model

EOS_ID = PIECES.index("[SEP]")
SHAPE = {
    "image_size": 16,
    "channels": (8, 8),
    "autoencoder_channels": (8, 8),
    "norm_groups": 4,
    "num_heads": 2,
    "hidden_size": 16,
    "num_layers": 1,
    "blocks_per_stage": 1,
    "latent_channels": 2,
}


def diffusion_model(*, with_text=True, text_family="bert", **changes):
    """A diffusion model with random weights, also in its last layers."""
    text = tiny_model("mlm", family=text_family) if with_text else None
    config = DiffusionConfig(**{**SHAPE, **changes})
    if text is not None:
        nested = NestedConfig(text.config)
        config = replace(config, vocab_size=text.config.vocab_size, text=nested)
    else:
        config = replace(config, vocab_size=1)
    tokenizer = text.tokenizer if text else None
    model = Model.from_config(config, tokenizer, rng=torch.Generator().manual_seed(0))
    scramble(model.module.denoiser)
    return model


CLIP_SHAPE = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "projection_size": 12,
    "max_text_length": 24,
}
RESNET_SHAPE = {"channels": (8, 16), "blocks_per_stage": 1, "norm_groups": 4}


def clip_model(family="bert", dropout=0.1, **changes):
    """A CLIP with random weights and this text encoder."""
    options = {"dropout": dropout, "attention_dropout": dropout}
    if family == "clip-text":
        options = {"end_of_text_id": EOS_ID}
    text = tiny_model(family=family, **options)
    pooling = {"text_pooling": "eos"} if family == "clip-text" else {}
    shape = RESNET_SHAPE if changes.get("vision") == "resnet" else {}
    config = ClipConfig(
        **{**CLIP_SHAPE, **pooling, **shape, **changes},
        vocab_size=text.config.vocab_size,
        text=NestedConfig(text.config),
    )
    model = Model.from_config(config, text.tokenizer, rng=torch.Generator().manual_seed(0))
    scramble(model.module)
    return model


def drawings(count, size=16, seed=0):
    """Examples of drawings."""
    made = (make_drawing(seed, number, size) for number in range(count))
    return [
        ImageExample(f"drawing {n}", pixels, drawing.caption, str(n))
        for n, (drawing, pixels) in enumerate(made)
    ]


def image_set(examples):
    """Examples as a set in memory."""
    return ImageSet(
        np.stack([one.content for one in examples]),
        [one.caption for one in examples],
        [one.group for one in examples],
        [list(one.keywords) for one in examples],
    )


def image_text_batches(tokenizer, *, count=40, batch_size=12, **options):
    """Batches of drawings, some of which have equal captions."""
    found = image_set(drawings(count))
    found.captions[1::4] = found.captions[::4]
    return ImageTextBatches(
        data=found,
        indices=np.arange(count),
        tokenizer=tokenizer,
        batch_size=batch_size,
        max_length=24,
        loss=CLIP_LOSS,
        **{"augmentation": Augmentation(shift=0.1, zoom=0.1), **options},
    )


@cache
def make_bomb():
    """A small file of too many pixels, in base64."""
    stream = io.BytesIO()
    Image.new("1", (9_000, 9_000)).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()
