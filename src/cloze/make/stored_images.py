"""All images of a run in the memory of its device: as pixels, or as latents of the autoencoder.

Batches then consist of indices, and nothing is copied in a step. Latents are computed once, if the
images are not changed at random. n images, c channels, y x positions.
"""

import math

import torch
from torch import Tensor

from cloze.data.images.image_set import ImageSet
from cloze.models.diffusion import Diffusion
from cloze.nn.utils import eval_mode
from cloze.objectives.diffusion import scale_pixels

_CHUNK = 256  # images that are encoded at a time
_MEMORY_FRACTION = 0.25  # of what is free on a GPU
_CPU_BATCHES = 50  # on a CPU, latents of more images than so many steps need are not computed first
_BYTES = 4  # of a number of a latent


def store_pixels(images: ImageSet, device: torch.device) -> Tensor | None:
    """The pixels on a GPU, if they fit (n y x 3); on a CPU they are read from the file."""
    if device.type != "cuda" or images.pixels.nbytes > _count_free_bytes(device):
        return None
    return torch.from_numpy(images.pixels[:].copy()).to(device)


@torch.no_grad()
def store_latents(
    images: ImageSet, model: Diffusion, device: torch.device, *, batch_size: int
) -> Tensor | None:
    """The latents of all images in float32, if they fit and are worth it: n c y x."""
    shape = (len(images), *model.config.sample_shape)
    if device.type == "cuda":
        is_stored = math.prod(shape) * _BYTES <= _count_free_bytes(device)
    else:
        is_stored = len(images) <= _CPU_BATCHES * batch_size
    if model.autoencoder is None or not is_stored:
        return None
    latents = torch.empty(shape, device=device)
    with eval_mode(model):
        for first in range(0, len(images), _CHUNK):
            pixels = torch.from_numpy(images.pixels[first : first + _CHUNK].copy()).to(device)
            latents[first : first + _CHUNK] = model.encode_images(scale_pixels(pixels))
    return latents


def _count_free_bytes(device: torch.device) -> int:
    return int(torch.cuda.mem_get_info(device)[0] * _MEMORY_FRACTION)
