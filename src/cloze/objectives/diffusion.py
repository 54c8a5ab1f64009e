"""Objectives of images: the reconstruction of an autoencoder, and the noise of a diffusion model.

b batch, c channels, y x positions.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from cloze.data.images.augment import apply_changes
from cloze.data.images.image_set import ImageBatch
from cloze.models.diffusion import Diffusion
from cloze.nn.image_autoencoder import reconstruction_error
from cloze.nn.noise_schedule import add_noise, make_target
from cloze.objectives.core import DeviceBatch, Objective, Terms, copy_to_device

DIFFUSION_LOSS, AUTOENCODER_LOSS = "diffusion", "reconstruction"
_MIDDLE = 127.5  # of the values of a pixel


def diffusion_objective(
    model: Diffusion, batch: ImageBatch | DeviceBatch, rng: torch.Generator | None = None
) -> Terms:
    """The mean squared error of the prediction, at a random noise level.  Ho et al. 2020, eq. 14.

    In evaluations, levels and noise depend on the images alone.
    """
    del rng  # like dropout, noise uses the global generator, which CUDA graphs can capture
    placed = place_images(model, batch)
    x = read_samples(model, placed)
    draws = _Draws.from_batch(placed, x.device, is_fixed=not model.training)
    times = draws.select(model.schedule.draw_times(draws.count, x.device, draws.generator))
    level = model.schedule.level(times)
    noise = draws.draw_normal(x.shape[1:], x.dtype)
    text, mask = read_texts(model, placed)
    output = model(add_noise(x, noise, level), times, text, mask)
    target = make_target(x, noise, level, model.schedule.prediction)
    errors = (output.float() - target.float()).square().flatten(1).mean(1)  # b
    return {DIFFUSION_LOSS: errors.sum()}


def make_autoencoder_objective(penalty_weight: float) -> Objective[ImageBatch]:
    """The objective of the autoencoder with this weight of the penalty of latents."""
    return cast("Objective[ImageBatch]", partial(_autoencoder_objective, penalty_weight))


def _autoencoder_objective(
    penalty_weight: float,
    model: Diffusion,
    batch: ImageBatch | DeviceBatch,
    rng: torch.Generator | None = None,
) -> Terms:
    """|x − x̂| + (x − x̂)² + w · penalty, each a mean over the values of an image."""
    assert model.autoencoder is not None
    placed = place_images(model, batch)
    images = read_images(placed)
    del rng  # see `diffusion_objective`
    noise = None
    if model.training:
        draws = _Draws.from_batch(placed, images.device, is_fixed=False)
        noise = draws.draw_normal(model.config.sample_shape, torch.float32)
    found, penalty = model.autoencoder.reconstruct(images, noise)
    values = images[0].numel()
    errors = reconstruction_error(found.float(), images) / values
    loss = errors + penalty_weight * penalty.float() / values
    squared = (found.detach().float() - images).square().flatten(1).mean(1)
    return {AUTOENCODER_LOSS: loss.sum(), f"{AUTOENCODER_LOSS}.squared_error": squared.sum()}


@dataclass(frozen=True)
class _Draws:
    """Random numbers for the images of a batch, or for those that this process has of it."""

    count: int  # images of the whole batch
    device: torch.device
    generator: torch.Generator | None  # None: the global one
    rows: Tensor | None  # those of this process; None: all

    @classmethod
    def from_batch(cls, placed: DeviceBatch, device: torch.device, *, is_fixed: bool) -> "_Draws":
        share = placed.batch.share
        if is_fixed:
            return cls(placed.batch.size, device, make_fixed_generator(placed), None)
        if share is None:
            return cls(placed.batch.size, device, None, None)
        generator = torch.Generator(device).manual_seed(share.seed)
        return cls(share.batch_size, device, generator, copy_to_device(share.rows, device))

    def select(self, drawn: Tensor) -> Tensor:
        """What belongs to the images here, of numbers for the whole batch."""
        return drawn if self.rows is None else drawn.index_select(0, self.rows)

    def draw_normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Normal numbers of this shape for each image."""
        whole = (self.count, *shape)
        return self.select(
            torch.randn(whole, generator=self.generator, device=self.device, dtype=dtype)
        )


def place_images(model: nn.Module, batch: ImageBatch | DeviceBatch) -> DeviceBatch:
    """The arrays of a batch on the device of the model."""
    if isinstance(batch, DeviceBatch):
        return batch
    return DeviceBatch.from_batch(next(model.parameters()).device, batch)


def read_texts(model: Diffusion, placed: DeviceBatch) -> tuple[Tensor | None, Tensor | None]:
    """The encoded captions of a batch and their mask: b s d, b s; those of stored ones by row."""
    stored, tensors = placed.batch.texts, placed.tensors
    if model.text_encoder is None:
        return None, None
    if stored is None:
        mask = tensors["attention_mask"]
        return model.encode_text(tensors["input_ids"], mask), mask
    rows = tensors["text_rows"]
    return stored.states.index_select(0, rows), stored.mask.index_select(0, rows)


def read_samples(model: Diffusion, placed: DeviceBatch) -> Tensor:
    """What the network denoises: stored latents, or the pixels or latents of the images."""
    stored = placed.batch.stored
    if stored is not None and stored.is_floating_point():
        return stored.index_select(0, placed.tensors["indices"])
    return model.encode_images(read_images(placed))


def read_images(placed: DeviceBatch) -> Tensor:
    """The images of a batch with values in [−1, 1], changed at random: b 3 y x."""
    stored, tensors = placed.batch.stored, placed.tensors
    pixels = tensors["images"] if stored is None else stored.index_select(0, tensors["indices"])
    images, changes = scale_pixels(pixels), tensors.get("changes")
    return images if changes is None else apply_changes(images, changes)


def scale_pixels(images: Tensor) -> Tensor:
    """Values in [−1, 1]: b y x 3, of 0 … 255 -> b 3 y x."""
    return images.permute(0, 3, 1, 2).float() / _MIDDLE - 1


def make_fixed_generator(batch: DeviceBatch) -> torch.Generator:
    """A generator that depends on the images of the batch."""
    seed = zlib.crc32(batch.batch.sample_ids.tobytes())
    return torch.Generator(batch.tensors["input_ids"].device).manual_seed(seed)
