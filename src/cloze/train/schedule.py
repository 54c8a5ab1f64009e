"""The learning rate over the budget: up in a straight line, then down in a chosen shape."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cloze.config import check_choices, number

Shape = Literal["linear", "cosine", "constant", "inverse-sqrt"]
# of the share of what follows the warm-up, and of the warm-up
SHAPES: dict[Shape, Callable[[float, float], float]] = {
    "linear": lambda x, _: 1 - x,
    "cosine": lambda x, _: (1 + math.cos(math.pi * x)) / 2,
    "constant": lambda *_: 1.0,
    # Vaswani et al. 2017, eq. 3: d^−½·min(step^−½, step·w^−1.5) is (d·w)^−½, the highest rate,
    # times min(step/w, √(w/step)); it does not look at the end
    "inverse-sqrt": lambda x, warmup: math.sqrt(warmup / (warmup + x * (1 - warmup))),
}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A factor on the highest rate, as a function of the share of the budget that is spent.

    Because it follows the budget and not the step, it ends exactly where the run ends, whether
    that is after a million steps or after twenty minutes.
    """

    shape: Shape = "linear"
    warmup: float = 0.01  # the share of the budget in which the rate rises; the paper's 10 k of 1 M

    def __post_init__(self) -> None:
        check_choices(self)
        number("warmup", self.warmup, 1e-9 if self.shape == "inverse-sqrt" else 0.0, 1.0)

    def __call__(self, fraction: float) -> float:
        if fraction < self.warmup:
            return fraction / self.warmup
        rest = 1 - self.warmup
        return SHAPES[self.shape]((fraction - self.warmup) / rest if rest else 1.0, self.warmup)
