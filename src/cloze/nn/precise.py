"""Where more digits are needed than a net is computed in."""

import torch
from torch import Tensor


def precise(device: torch.device) -> torch.device:
    """The device itself, or the CPU for one that has no float64 (Apple's GPUs)."""
    return torch.device("cpu") if device.type == "mps" else device


def log_softmax(scores: Tensor) -> Tensor:
    """In float32 at least: what is added up over a sentence needs more than half precision has."""
    return scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
