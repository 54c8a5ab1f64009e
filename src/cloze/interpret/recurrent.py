"""The recurrent layers of a model, and their gates at each token of a text."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from cloze.interpret.capture import capture
from cloze.interpret.gates import Gates
from cloze.models.elmo import Elmo
from cloze.nn.recurrent import RecurrentEncoder, StackedRNN


@dataclass(frozen=True, kw_only=True, eq=False)
class RecurrentLayer:
    """One direction of a recurrent layer of a model."""

    name: str  # 1, or 1.forward and 1.backward
    module: nn.RNNBase
    is_backward: bool = False  # it reads from the last token to the first


def list_recurrent_layers(module: nn.Module) -> list[RecurrentLayer]:
    """The recurrent layers that read the text, from the lowest; empty if there are none."""
    found: list[RecurrentLayer] = []
    for part in module.modules():
        directions: list[Any] = []
        if isinstance(part, StackedRNN):
            directions = [(layer,) for layer in part.layers]
        elif isinstance(part, RecurrentEncoder):
            directions = [tuple(layer.children()) for layer in part.layers]
        elif isinstance(part, Elmo):
            directions = list(zip(part.forward_layers, part.backward_layers, strict=True))
        for number, (forward, *backward) in enumerate(directions, 1):
            name = f"{number}.forward" if backward else f"{number}"
            found.append(RecurrentLayer(name=name, module=forward))
            found += [
                RecurrentLayer(name=f"{number}.backward", module=one, is_backward=True)
                for one in backward
            ]
    return found


@contextmanager
def capture_gates(layers: Sequence[RecurrentLayer]) -> Iterator[list[Gates]]:
    """Record the gates of recurrent layers at each of their calls, in the order of the calls.

    The gates of a backward layer are in the order of the text, which must be one text without
    padding.

        with capture_gates(list_recurrent_layers(module)) as captured:
            module(input_ids)
    """
    captured: list[Gates] = []

    def store(layer: RecurrentLayer, gates: Gates) -> None:
        captured.append(gates.flip() if layer.is_backward else gates)

    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(capture(layer.module, "gates", reduce=partial(store, layer)))
        yield captured
