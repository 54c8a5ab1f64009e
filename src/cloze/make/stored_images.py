"""What does not change during a run, in the memory of its device: images and encoded captions.

Batches then consist of indices, and nothing is copied in a step. Latents are computed once, if the
images are not changed at random, and the states of the text encoder once for each different
caption. n images or captions, c channels, y x positions, s tokens, d width of the text encoder.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cloze.checkpoint.model import Model
from cloze.data.images.image_set import ImageSet, StoredTexts, encode_captions
from cloze.models.diffusion import Diffusion
from cloze.nn.utils import eval_mode
from cloze.objectives.diffusion import scale_pixels
from cloze.train.forward_context import autocast

_CHUNK = 256  # images that are encoded at a time
_MEMORY_FRACTION = 0.25  # of what is free on a GPU
# on a CPU, what more images or captions than so many steps need is not computed first
_CPU_BATCHES, _CPU_BYTES = 50, 1 << 28
_BYTES = 4  # of a number of a latent, or of a state


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


@torch.no_grad()
def store_texts(
    captions: Sequence[str], model: Model, *, max_length: int, batch_size: int, dtype: str
) -> StoredTexts | None:
    """The captions as the text encoder reads them, if they fit and are worth it.

    They are encoded with the precision of the training, `dtype`.
    """
    device, module = model.device, model.module
    ids, mask = (
        torch.from_numpy(one)
        for one in encode_captions(model.tokenizer, captions, max_length, truncation="head")
    )
    width = model.config.text.config.hidden_size
    size = ids.numel() * width * _BYTES
    if device.type == "cuda":
        is_stored = size <= _count_free_bytes(device)
    else:
        is_stored = size <= _CPU_BYTES and len(captions) <= _CPU_BATCHES * batch_size
    if not is_stored:
        return None
    with eval_mode(module), autocast(dtype, device):
        states = [
            module.encode_text(ids[rows].to(device), mask[rows].to(device))
            for rows in torch.arange(len(ids)).split(_CHUNK)
        ]
    rows = {caption: row for row, caption in enumerate(captions)}
    return StoredTexts(rows, torch.cat(states), mask.to(device))


def _count_free_bytes(device: torch.device) -> int:
    return int(torch.cuda.mem_get_info(device)[0] * _MEMORY_FRACTION)
