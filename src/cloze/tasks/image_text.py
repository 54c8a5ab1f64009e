"""Vectors of images and texts of a CLIP, which all functions on images compute here.

n images or texts, y x positions, d size of a vector.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.checkpoint.model import Model
from cloze.data.images.image_set import pad_captions
from cloze.nn.utils import eval_mode

BATCH_SIZE = 256  # images or texts computed at a time


def compute_image_vectors(
    model: Model,
    pixels: NDArray[np.uint8],
    *,
    batch_size: int = BATCH_SIZE,
    normalize: bool = True,
) -> Tensor:
    """The vectors of images of the model's size: n y x 3 -> n d, in float32."""
    module, found = model.module, []
    with torch.inference_mode(), eval_mode(module):
        for first in range(0, len(pixels), batch_size):
            part = torch.from_numpy(np.ascontiguousarray(pixels[first : first + batch_size]))
            found.append(
                module.embed_images(module.normalize_pixels(part.to(model.device))).float()
            )
    return _finish(found, model, normalize)


def compute_text_vectors(
    model: Model,
    texts: Sequence[str],
    *,
    batch_size: int = BATCH_SIZE,
    normalize: bool = True,
) -> Tensor:
    """The vectors of texts: n -> n d, in float32; long texts are truncated."""
    length = model.max_length
    found = model.tokenizer.encode_batch(texts, max_length=length, truncation="head")
    sequences = [one.ids for one in found]
    return compute_sequence_vectors(model, sequences, batch_size=batch_size, normalize=normalize)


def compute_sequence_vectors(
    model: Model,
    sequences: Sequence[Sequence[int]],
    *,
    batch_size: int = BATCH_SIZE,
    normalize: bool = True,
) -> Tensor:
    """The vectors of texts as token ids: n -> n d, in float32."""
    module, found = model.module, []
    with torch.inference_mode(), eval_mode(module):
        for first in range(0, len(sequences), batch_size):
            ids, mask = pad_captions(
                model.tokenizer, sequences[first : first + batch_size], model.max_length
            )
            placed = (torch.from_numpy(array).to(model.device) for array in (ids, mask))
            found.append(module.embed_texts(*placed).float())
    return _finish(found, model, normalize)


def _finish(found: list[Tensor], model: Model, normalize: bool) -> Tensor:
    size = model.config.projection_size
    vectors = torch.cat(found) if found else torch.zeros(0, size, device=model.device)
    return F.normalize(vectors, dim=-1) if normalize else vectors
