"""A model folder at a quarter of its size, which everyone opens as it is.

Matrices go into eight bits, one sign, four of exponent and three of fraction (E4M3, Micikevicius
et al. 2022); biases and norms, which are few, stay as they are. The numbers carry their own
exponent, so there are no scales beside them and no loader to write: `transformers` and we widen
them while reading. Whole numbers with a scale for each row come nearer to the weights (the figures
are in docs/builtin.md), but nothing opens such a file as it is.
"""

import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cloze.checkpoint.atomic import whole_folder
from cloze.checkpoint.model import Model
from cloze.checkpoint.weights import SINGLE

SMALL = torch.float8_e4m3fn
LARGEST = torch.finfo(SMALL).max  # 448


def save_small(model: Model, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """As `model.save`, with the matrices in eight bits each."""
    target = Path(folder)
    with whole_folder(target, overwrite=overwrite) as work:
        model.save_into(work)
        file = work / SINGLE
        tensors = {name: small(tensor) for name, tensor in load_file(file).items()}
        file.unlink()  # what was read may still be mapped to it: it is not to be written over
        save_file(tensors, file, metadata={"format": "pt"})
    return target


def small(tensor: Tensor) -> Tensor:
    """A matrix in eight bits; what is none, or does not fit their range, as it is."""
    fits = tensor.dim() == 2 and bool(tensor.abs().max() <= LARGEST)  # noqa: PLR2004
    return tensor.to(SMALL) if fits else tensor
