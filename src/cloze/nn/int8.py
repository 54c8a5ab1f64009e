"""Linear layers on a CPU in 8-bit integers, and the ranges of their inputs.

Weights have a scale for each row, inputs one for each vector, which is found when it is there
(dynamic quantization): a result does not depend on the other vectors of a batch. A few elements of
the vectors after a norm are much larger than the others, and nearly constant; the 8 bits would be
spent on them. So these vectors are centered and rescaled element by element, with ranges that are
measured once, and the weights are changed such that the product is the same (Xiao et al. 2023,
Wei et al. 2023).

n vectors, k elements of an input, m of an output.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cloze.nn.encoder import Encoder
from cloze.nn.layers import ACTIVATIONS, Activation
from cloze.nn.layout import Packed
from cloze.nn.utils import eval_mode

_SEQUENCES, _LENGTH = 8, 32  # of random tokens
_STRENGTH = 0.7  # 1: all elements of an input get the same range; 0: all columns of the weight
_MIN_RANGE = 0.1  # of an element, relative to the median of all
_ROUND = 1.5 * 2**23  # a small number plus this is rounded to an integer, in the lowest bits
_SYMMETRIC, _SHIFTED = 127.0, 253.0  # levels of a vector: of the largest absolute value, or of all

# the lowest value of an activation, if its outputs are as they are
LOWEST: Mapping[Activation, float] = {
    F.gelu: -0.17,
    ACTIVATIONS["gelu_new"]: -0.1701,
    F.relu: 0.0,
    F.silu: -0.2785,
}


class InputRange(NamedTuple):
    """The lowest and the highest value of each element of the inputs of a layer."""

    low: Tensor  # k
    high: Tensor  # k


class Int8Linear:
    """W·x + b in integers."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        measured: InputRange | None = None,
        lowest: float | None = None,
    ) -> None:
        """`measured`: the range of each element; `lowest`: no element is less than this."""
        weight = weight.detach().float()
        bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()
        self._rescale: tuple[Tensor, Tensor] | None = None  # what is added, after a product
        if measured is not None:
            center, factor = _center_inputs(weight, measured)
            bias = bias + weight @ center
            weight = weight / factor
            self._rescale = -center * factor, factor
        self._lowest = lowest
        scale = weight.abs().amax(-1, keepdim=True).clamp_min_(1e-30).div_(_SYMMETRIC)
        values = (weight / scale).round_().to(torch.int8)
        self._weight = values.t()  # k m
        self._scale, self._bias = scale[:, 0], bias
        self._sums = self._scale * values.sum(1)  # m

    def __call__(self, x: Tensor, activation: Activation | None = None) -> Tensor:
        if self._rescale is not None:
            x = torch.addcmul(self._rescale[0], x, self._rescale[1])
        values, scale, offset = self._quantize(x)
        # in place: for large tensors, getting memory takes longer than computing
        y = torch._int_mm(values, self._weight).float().mul_(scale)
        added = self._bias if offset is None else torch.addcmul(self._bias, offset, self._sums)
        torch.addcmul(added, y, self._scale, out=y)
        if activation is F.gelu:
            torch.ops.aten.gelu_(y)
            return y
        return y if activation is None else activation(y)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Residual + W·x + b."""
        return self(x).add_(residual)

    def _quantize(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """8-bit integers, and scale and offset (n 1): x is about scale · integers + offset."""
        highest = x.amax(-1, keepdim=True)
        if self._lowest is None:
            largest = torch.maximum(highest, x.amin(-1, keepdim=True).neg_()).clamp_min_(1e-30)
            rounded = (x * (_SYMMETRIC / largest)).add_(_ROUND)
            return _take_lowest_bits(rounded), largest.div_(_SYMMETRIC), None
        span = (highest - self._lowest).clamp_min_(1e-30)
        # the lowest value is −126
        zero = (span.reciprocal().mul_(-self._lowest * _SHIFTED) - _SHIFTED / 2).round_()
        rounded = (x * (_SHIFTED / span)).add_(zero + _ROUND)
        scale = span.div_(_SHIFTED)
        return _take_lowest_bits(rounded), scale, -zero * scale


def _center_inputs(weight: Tensor, measured: InputRange) -> tuple[Tensor, Tensor]:
    """What is subtracted from each element of the inputs, and what they are multiplied by: k."""
    half = (measured.high - measured.low) / 2
    half = torch.maximum(half, _MIN_RANGE * half.median()).clamp_min_(1e-6)
    columns = weight.abs().amax(0)
    columns = torch.maximum(columns, _MIN_RANGE * columns.median()).clamp_min_(1e-6)
    factor = columns ** (1 - _STRENGTH) / half**_STRENGTH
    return (measured.high + measured.low) / 2, factor


def _take_lowest_bits(rounded: Tensor) -> Tensor:
    """The integers that were rounded by adding `_ROUND`."""
    return rounded.view(torch.int32).to(torch.int8)


@torch.inference_mode()
def measure_input_ranges(module: Encoder) -> dict[nn.Linear, InputRange]:
    """The ranges of the inputs of the layers that read the output of a norm.

    They hardly depend on the text, so that random tokens are enough.
    """
    layers = [one for block in module.blocks for one in (block.attention.qkv, block.ffn.up)]
    packed = Packed((min(_LENGTH, module.max_positions),) * _SEQUENCES)
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(
        0, len(module.embeddings.word.weight), (sum(packed.lengths),), generator=rng
    )
    found: dict[nn.Linear, InputRange] = {}
    with _observe_inputs(layers, found), eval_mode(module):
        module(ids, packed)
    return found


@contextmanager
def _observe_inputs(layers: list[nn.Linear], found: dict[nn.Linear, InputRange]) -> Iterator[None]:
    def observe(layer: nn.Linear, _: nn.Module, inputs: tuple[Tensor]) -> None:
        x = inputs[0].flatten(0, -2).float()
        found[layer] = InputRange(x.amin(0).clone(), x.amax(0).clone())

    hooks = [layer.register_forward_pre_hook(partial(observe, layer)) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
