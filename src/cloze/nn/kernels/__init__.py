"""Fused kernels for NVIDIA GPUs, which take about half of the time of torch's operators.

Each is a torch operator (`torch.ops.cloze.…`) with its gradient, so that it runs eagerly, compiled
and in CUDA graphs. `cloze.nn.fuse` calls them, or computes the same without them. They are written
in Triton, which is installed with torch for CUDA only.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, ops

AVAILABLE = find_spec("triton") is not None and torch.version.hip is None
HALF = (torch.bfloat16, torch.float16)
HEAD_SIZES = 32, 64, 128  # that `attention` supports
# longer sequences, for which our kernel was not timed, use torch's flash attention
MAX_SEQLEN = 512
FUNCTIONS: Mapping[str, Callable[..., Any]] = {}  # the same as the operators, without a gradient

if AVAILABLE:
    from cloze.nn.kernels import (  # noqa: F401 (registers the operators)
        add_norm,
        attention,
        cross_entropy,
        gelu,
    )

    FUNCTIONS = {
        "add_norm": add_norm.compute_add_norm,
        "attention": attention.compute_attention,
        "gelu": gelu.compute_gelu,
    }


def get_operator(name: str) -> Callable[..., Any]:
    """The operator of this name, or in inference mode the function that computes it.

    The first call of an operator imports torch's compiler, which takes seconds.
    """
    if torch.compiler.is_compiling() or name not in FUNCTIONS:
        return getattr(ops.cloze, name)
    return FUNCTIONS[name] if torch.is_inference_mode_enabled() else getattr(ops.cloze, name)


def is_supported(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these tensors."""
    return AVAILABLE and all(one.is_cuda and one.dtype in HALF for one in tensors)


def can_fit(head_size: int, max_seqlen: int) -> bool:
    """Whether `attention` can compute with heads and sequences of these sizes."""
    return AVAILABLE and max_seqlen <= MAX_SEQLEN and head_size in HEAD_SIZES


def can_attend(qkv: Tensor, max_seqlen: int) -> bool:
    """Whether `attention` can compute with n 3h d and sequences of up to this length."""
    return can_fit(qkv.shape[-1], max_seqlen) and is_supported(qkv)
