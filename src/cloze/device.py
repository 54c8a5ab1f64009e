"""Devices and dtypes by name."""

import torch

from cloze.config import one_of
from cloze.errors import ConfigError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


# of inference: int8 quantizes the blocks of an encoder on a CPU, auto measures which is fastest
INFERENCE_DTYPES = (*DTYPES, "int8", "auto")


def resolve_device(name: str | torch.device | None) -> torch.device:
    """The device of this name if it is available; None selects the GPU if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch raises either for a missing device
        reason = str(error).splitlines()[0]
        if "Expected one of" in reason:  # torch lists all of its device types
            raise ConfigError(
                f"device {str(name)!r} is unknown", fix="use cpu, cuda, cuda:1 or mps"
            ) from None
        raise ConfigError(f"device {name} is not available: {reason}", fix="use cpu") from None
    if device.type == "meta":
        raise ConfigError(f"device {name} cannot store values", fix="use cpu")
    return device


def resolve_dtype(name: str | torch.dtype) -> torch.dtype:
    """The dtype of this name."""
    if isinstance(name, torch.dtype):
        name = str(name).removeprefix("torch.")
    return DTYPES[one_of("dtype", name, DTYPES)]
