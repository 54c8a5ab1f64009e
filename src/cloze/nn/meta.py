"""Modules without memory behind them: shapes to check or count, weights to be put in."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_DRAWS = frozenset({"normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "xavier_uniform_"})


class _Undrawn(TorchFunctionMode):
    """Draws no weights.

    torch draws even those that are not there, by way of its compiler, whose import takes longer
    than opening a model does.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever torch returns
        if getattr(func, "__name__", None) in _DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def without_memory() -> Iterator[None]:
    """What is built in here has shapes and no values."""
    with torch.device("meta"), _Undrawn():
        yield
