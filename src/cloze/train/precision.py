"""In which numbers the forward pass is computed; the weights and the optimiser stay in float32."""

from contextlib import AbstractContextManager

import torch

from cloze.config import one_of

PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16}


def precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """A context for the forward pass. bf16 has float32's range, so losses need no scaling."""
    dtype = PRECISIONS[one_of("precision", name, PRECISIONS)]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
