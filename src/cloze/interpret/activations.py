"""The activations of a model's neurons.

A neuron is a unit of a feed-forward network, after its activation function, or of a recurrent
layer. Only positive activations are recorded, others are 0. b rows, t tokens, n neurons.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from cloze.config import suggest
from cloze.errors import InputError
from cloze.interpret.capture import capture
from cloze.interpret.recurrent import list_recurrent_layers
from cloze.nn.block import FeedForward


@dataclass(frozen=True, kw_only=True, eq=False)
class NeuronLayer:
    """The neurons of one layer."""

    name: str  # 1; of a translator encoder.1, decoder.1; of a recurrent layer maybe 1.backward
    module: nn.Module
    size: int  # number of neurons
    is_backward: bool = False  # it reads from the last token to the first

    @property
    def is_recurrent(self) -> bool:
        return isinstance(self.module, nn.RNNBase)


def list_neuron_layers(module: nn.Module) -> list[NeuronLayer]:
    """The layers of a model that have neurons, from the lowest; empty if there are none."""
    found = [
        (name.rsplit(".", 2)[0], part)
        for name, part in module.named_modules()
        # no view reads a database, so RETRO's neighbor encoder computes nothing
        if isinstance(part, FeedForward) and not name.startswith("neighbor_encoder.")
    ]
    stacks = Counter(stack for stack, _ in found)
    numbers: Counter[str] = Counter()
    layers = []
    for stack, part in found:
        numbers[stack] += 1
        prefix = f"{stack}." if len(stacks) > 1 else ""
        size = part.down.in_features
        layers.append(NeuronLayer(name=f"{prefix}{numbers[stack]}", module=part, size=size))
    return layers or [
        NeuronLayer(
            name=layer.name,
            module=layer.module,
            size=layer.module.proj_size or layer.module.hidden_size,
            is_backward=layer.is_backward,
        )
        for layer in list_recurrent_layers(module)
    ]


def select_neuron_layers(
    layers: Sequence[NeuronLayer], names: Sequence[str] | None
) -> list[NeuronLayer]:
    """The layers with these names, all for None; −1 is the last one."""
    if names is None:
        return list(layers)
    by_name = {layer.name: layer for layer in layers}
    found = []
    for name in names:
        text = str(name)
        if text.startswith("-") and text[1:].isdigit() and 0 < int(text[1:]) <= len(layers):
            found.append(layers[int(text)])
        elif text in by_name:
            found.append(by_name[text])
        else:
            raise InputError(f"there is no layer {text!r} with neurons", fix=suggest(text, by_name))
    return list(dict.fromkeys(found))


def parse_neuron(text: str, layers: Sequence[NeuronLayer]) -> tuple[NeuronLayer, int]:
    """The layer and the number, from 0, of a neuron such as 3:120."""
    name, _, number = str(text).rpartition(":")
    if not (name and number.isdigit()):
        raise InputError(
            f"the neuron {text!r} is not of the form LAYER:NUMBER",
            fix="give its layer, from 1, and its number, from 0, such as 3:120",
        )
    (layer,) = select_neuron_layers(layers, [name])
    if int(number) >= layer.size:
        raise InputError(
            f"layer {layer.name} has no neuron {number}",
            fix=f"use 0 to {layer.size - 1}",
        )
    return layer, int(number)


@contextmanager
def capture_activations(
    layers: Sequence[NeuronLayer], reduce: Callable[[NeuronLayer, Tensor], Tensor] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Record the positive activations of layers by name, … t n, at their last call.

    `reduce` is applied at once, so that only what it returns stays in memory. The activations of a
    backward layer are in the order of the text, which must be one text without padding.

        with capture_activations(list_neuron_layers(module)) as captured:
            module(input_ids)
    """
    captured: dict[str, Tensor] = {}

    def store(layer: NeuronLayer, values: Tensor) -> None:
        positive = values.detach().relu()
        if layer.is_backward:
            positive = positive.flip(1)
        captured[layer.name] = positive if reduce is None else reduce(layer, positive)

    with ExitStack() as stack:
        for layer in layers:
            kind = "recurrent" if layer.is_recurrent else "ffn"
            stack.enter_context(capture(layer.module, kind, reduce=partial(store, layer)))
        yield captured
