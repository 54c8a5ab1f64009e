"""In which numbers the forward pass is computed; the weights and the optimiser stay in float32."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from cloze.device import DTYPES
from cloze.errors import ConfigError

Precision = Literal["float32", "bf16"]
PRECISIONS: dict[Precision, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16}

# By every name that the verbs which use a model know it by, too.
SPELLINGS: dict[str, Precision] = {
    spelled: name
    for name, dtype in PRECISIONS.items()
    for spelled, same in DTYPES.items()
    if same == (dtype or torch.float32)
}


def precision_named(name: str) -> Precision:
    """A precision by any of its names."""
    if name not in SPELLINGS:
        raise ConfigError(
            f"run.precision {name!r} is unknown",
            fix=f"choose from {', '.join(SPELLINGS)} (--dtype)",
        )
    return SPELLINGS[name]


def precision(name: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context for the forward pass. bf16 has float32's range, so losses need no scaling."""
    dtype = PRECISIONS[name]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
