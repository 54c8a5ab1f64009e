"""Record what modules compute, with forward hooks that are removed on exit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from cloze.nn.attention import Attention, CrossAttention


@contextmanager
def capture(module: nn.Module, module_type: type[nn.Module]) -> Iterator[list[Tensor]]:
    """Record the output of each submodule of a type, in the order of the calls.

    For `Attention` and `CrossAttention` the attention weights (b h q k) are recorded, which are
    computed again for this purpose.

        with capture(model.module, Attention) as captured:
            model.module(input_ids)
    """
    captured: list[Tensor] = []

    def record(submodule: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if isinstance(submodule, Attention | CrossAttention):
            output = submodule.weights(*inputs)
        captured.append(output)

    hooks = [
        part.register_forward_hook(record)
        for part in module.modules()
        if isinstance(part, module_type)
    ]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()
