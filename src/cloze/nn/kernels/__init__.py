"""Kernels for NVIDIA GPUs, where torch's own pieces leave half of the time on the table.

Each is an operator of torch (`torch.ops.cloze.…`) with its gradient, so that it runs eagerly,
compiled and recorded alike, and each has a plain equal beside the place where it is called. They
are written in Triton, which comes with torch for CUDA and only with it.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

_AVAILABLE = find_spec("triton") is not None and torch.version.hip is None
_HALF = (torch.bfloat16, torch.float16)
_WIDTHS = 32, 64, 128  # of a head that `attention` can hold
# tokens of a sequence: beyond, where ours is not timed, torch's flash attention takes over
LONGEST = 512

if _AVAILABLE:
    from cloze.nn.kernels import (  # noqa: F401 (registers the operators)
        add_norm,
        attention,
        cross_entropy,
        gelu,
    )


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels are there for numbers such as these."""
    return _AVAILABLE and all(one.is_cuda and one.dtype in _HALF for one in tensors)


def attends(qkv: Tensor, longest: int) -> bool:
    """Whether `attention` is there for sequences of up to so many tokens; qkv is n 3h d."""
    return longest <= LONGEST and qkv.shape[-1] in _WIDTHS and usable(qkv)
