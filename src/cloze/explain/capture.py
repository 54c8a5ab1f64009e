"""Look in from outside: the module is not changed, and the hooks leave on exit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from cloze.nn.attention import Attention, CrossAttention


@contextmanager
def capture(module: nn.Module, kind: type[nn.Module]) -> Iterator[list[Tensor]]:
    """What each part of one kind gives, in the order in which they are called.

    For `Attention` that is its weights (b h q k), computed aloud because someone looks; for any
    other part its output.

        with capture(model.module, Attention) as seen:
            model.module(input_ids)
    """
    seen: list[Tensor] = []

    def look(part: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen.append(
            part.weights(*inputs) if isinstance(part, Attention | CrossAttention) else output
        )

    hooks = [
        part.register_forward_hook(look) for part in module.modules() if isinstance(part, kind)
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
