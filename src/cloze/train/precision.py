"""In which numbers the forward pass is computed; the weights and the optimiser stay in float32."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["float32", "bf16"]
PRECISIONS: dict[Precision, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16}


def precision(name: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context for the forward pass. bf16 has float32's range, so losses need no scaling."""
    dtype = PRECISIONS[name]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
