"""Weights that several worker processes have in common.

The layout of a folder is not always that of the module: queries, keys and values are joined, float8
is decoded. So the first worker that loads a model writes its weights as the module has them to a
temporary file, and all workers map this file into memory, where the system keeps it once.
"""

import ctypes
import fcntl
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cloze.checkpoint.model import Model

if TYPE_CHECKING:
    from torch import Tensor


def share_weights(model: Model, folder: Path, source: str) -> Model:
    """Replace the weights of a model by those of a file in `folder`, which is written if needed."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    weights = _list_weights(model)
    if not weights:
        return model
    name = hashlib.sha256(f"{source} {next(iter(weights.values())).dtype}".encode()).hexdigest()
    file = folder / f"{name}.safetensors"
    with (folder / f"{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            work = file.with_suffix(".new")
            save_file({name: one.detach().contiguous() for name, one in weights.items()}, work)
            work.replace(file)
    with safe_open(file, framework="pt") as opened:
        for name, weight in weights.items():
            stored = opened.get_tensor(name)
            if stored.shape == weight.shape and stored.dtype == weight.dtype:
                weight.data = stored
    _return_memory()
    return model


def _return_memory() -> None:
    """Give the memory of the replaced weights back to the system, which glibc would keep."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _list_weights(model: Model) -> "dict[str, Tensor]":
    """The weights in main memory by name; one that has several names is listed once."""
    import torch

    module = model.module
    if not isinstance(module, torch.nn.Module):
        return {}  # tables of n-grams and vectors are mapped already
    found = dict(module.named_parameters())
    return {
        name: one for name, one in found.items() if one.device.type == "cpu" and one.is_contiguous()
    }
