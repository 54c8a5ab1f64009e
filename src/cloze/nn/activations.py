"""The non-linearities that published configurations name."""

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]

_tanh_gelu: Activation = partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_new": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}
