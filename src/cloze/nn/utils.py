"""Helpers around modules: evaluation mode, CUDA graphs, construction without memory, precision."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

T = TypeVar("T")

_INITIALIZERS = frozenset(
    {"normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "xavier_uniform_"}
)


@contextmanager
def eval_mode(*modules: object) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule is in the mode it was in before.

    Frozen parts of a model in training may be in evaluation mode, so one flag for all is not
    enough. Modules that are not of torch, such as word vectors, have no modes.
    """
    networks = [one for one in modules if isinstance(one, nn.Module)]
    in_training = [part for one in networks for part in one.modules() if part.training]
    for part in in_training:
        part.training = False
    try:
        yield
    finally:
        for part in in_training:
            part.training = True


def capture_graph(
    function: Callable[[], T],
    pool: Any = None,  # noqa: ANN401 (a handle that torch does not name)
    *,
    error_mode: str = "global",
) -> tuple[torch.cuda.CUDAGraph, T]:
    """Record the kernels of a function as a CUDA graph, without running them.

    The function must have run before, so that workspaces are allocated. Its output is in memory of
    the graph, which each replay overwrites. With `error_mode="thread_local"` other threads may use
    the GPU in the meantime.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode=error_mode):
        output = function()
    return graph, output


class HostCopy:
    """The copy of a tensor in main memory; that of a GPU's tensor is made while others compute."""

    def __init__(self, x: Tensor) -> None:
        self._host, self._event = x, None
        if x.is_cuda:
            self._host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            self._host.copy_(x, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(x.device))

    def wait(self) -> Tensor:
        """The copy, when it is complete."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.cpu()


class _SkipInitializers(TorchFunctionMode):
    """Skips the random initialization of weights.

    On the meta device torch would still go through its compiler for it, whose import takes longer
    than loading a model.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever torch returns
        if getattr(func, "__name__", None) in _INITIALIZERS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def skip_allocation() -> Iterator[None]:
    """Modules built inside are on the meta device: they have shapes, and no values."""
    with torch.device("meta"), _SkipInitializers():
        yield


def float64_device(device: torch.device) -> torch.device:
    """The device itself, or the CPU for one without float64 (Apple's GPUs)."""
    return torch.device("cpu") if device.type == "mps" else device


def log_softmax(logits: Tensor) -> Tensor:
    """In float32 at least: sums over a sentence need more digits than half precision has."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
