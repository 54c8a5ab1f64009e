"""Where numbers of 64 bits can be computed."""

import torch


def precise(device: torch.device) -> torch.device:
    """The device itself, or the CPU for one that has no float64 (Apple's GPUs)."""
    return torch.device("cpu") if device.type == "mps" else device
