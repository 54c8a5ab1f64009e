"""Mixed precision: the data type of the forward pass. Weights and optimizer stay in float32."""

from contextlib import AbstractContextManager

import torch

from cloze.train.config import DTYPE_NAMES

_AUTOCAST = {"float32": None, "bf16": torch.bfloat16}


def precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """A context for the forward pass. bf16 has float32's range, so losses need no scaling."""
    dtype = _AUTOCAST[DTYPE_NAMES[name]]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
