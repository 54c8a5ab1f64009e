"""Inspect a model from outside, with forward hooks that are removed on exit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from cloze.nn.attention import Attention, CrossAttention


@contextmanager
def capture(module: nn.Module, kind: type[nn.Module]) -> Iterator[list[Tensor]]:
    """What each submodule of a kind computes, in the order of the calls.

    For `Attention` and `CrossAttention` these are the attention weights (b h q k), which are
    computed again for it; for any other kind the output.

        with capture(model.module, Attention) as captured:
            model.module(input_ids)
    """
    captured: list[Tensor] = []

    def record(part: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        captured.append(
            part.weights(*inputs) if isinstance(part, Attention | CrossAttention) else output
        )

    hooks = [
        part.register_forward_hook(record) for part in module.modules() if isinstance(part, kind)
    ]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()
