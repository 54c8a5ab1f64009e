"""Where a model computes."""

import torch

from cloze.errors import ConfigError


def device_of(name: str | torch.device | None) -> torch.device:
    """The device named, if it is there; None is the GPU where there is one, else the CPU."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch raises either for a device not there
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name} cannot be used: {reason}", fix="use cpu") from None
    if device.type == "meta":
        raise ConfigError(f"device {name} cannot be used: it holds no numbers", fix="use cpu")
    return device
