"""The training budget in steps, tokens or minutes, and the learning rate as a function of it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from cloze.config import Config, Flag, Help, Range
from cloze.errors import ConfigError

SECONDS = 60
_MIN_WARMUP = 1e-9  # of the shape inverse-sqrt, which divides by it

Shape = Literal["linear", "cosine", "constant", "inverse-sqrt"]
# The factor after the warmup, given the spent fraction of the remaining budget and the warmup.
SHAPES: dict[Shape, Callable[[float, float], float]] = {
    "linear": lambda x, _: 1 - x,
    "cosine": lambda x, _: (1 + math.cos(math.pi * x)) / 2,
    "constant": lambda *_: 1.0,
    # Vaswani et al. 2017, eq. 3: d^−½·min(step^−½, step·w^−1.5) is the peak learning rate (d·w)^−½
    # times min(step/w, √(w/step)); it does not depend on the length of the run
    "inverse-sqrt": lambda x, warmup: math.sqrt(warmup / (warmup + x * (1 - warmup))),
}


@dataclass(frozen=True)
class Progress:
    """How far a run has come, including before it was resumed, over all processes."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Budget(Config):
    """A training budget: exactly one of the three."""

    steps: Annotated[int | None, Range(1, 1 << 60), Help("Number of training steps")] = None
    tokens: Annotated[int | None, Range(1, 1 << 60), Help("Number of training tokens")] = None
    minutes: Annotated[
        float | None, Range(above=0, below=math.inf), Help("Training time in minutes")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            raise ConfigError(
                f"the budget has {' and '.join(given) or 'no limit'}",
                fix="give exactly one of steps, tokens, minutes",
            )

    def fraction(self, progress: Progress) -> float:
        """The fraction of the budget that is spent, from 0 to 1."""
        return self._fraction(progress.step, progress.tokens, progress.seconds)

    def fraction_at_next_step(self, progress: Progress, tokens: int) -> float:
        """The fraction that will be spent in the middle of the next step of `tokens` tokens.

        The schedule is evaluated there, so that neither the first nor the last step has a learning
        rate of zero. The duration of a step is unknown, so a budget in minutes is used as it is.
        """
        return self._fraction(progress.step + 0.5, progress.tokens + tokens / 2, progress.seconds)

    def is_spent(self, progress: Progress) -> bool:
        return self.fraction(progress) >= 1

    def _fraction(self, step: float, tokens: float, seconds: float) -> float:
        if self.steps is not None:
            return min(step / self.steps, 1.0)
        if self.tokens is not None:
            return min(tokens / self.tokens, 1.0)
        assert self.minutes is not None
        return min(seconds / (SECONDS * self.minutes), 1.0)


@dataclass(frozen=True, kw_only=True)
class Schedule(Config):
    """A factor of the peak learning rate, as a function of the spent fraction of the budget.

    It rises linearly from 0 to 1 during the warmup and then falls in one of four shapes. As it
    depends on the budget and not on the step, it ends exactly where the run ends, whether that is
    after a million steps or after twenty minutes. The slanted triangular schedule of Howard & Ruder
    2018, eq. 3, is the shape linear with a warmup of cut_frac = 0.1 and a `min_factor` of 1/ratio
    = 1/32.
    """

    shape: Annotated[
        Shape,
        Help("Learning rate after the warmup: linear, cosine, constant or inverse-sqrt"),
        Flag("--schedule", "SHAPE"),
    ] = "linear"
    # original: 10,000 of 1,000,000 steps
    warmup: Annotated[
        float,
        Range(0, 1),
        Help("Fraction of the budget in which the learning rate rises from 0 to its peak"),
        Flag("--warmup", "FRACTION"),
    ] = 0.01
    min_factor: Annotated[
        float,
        Range(0, 1),
        Help("Lowest learning rate, as a fraction of its peak (slanted triangular: 1/32)"),
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape == "inverse-sqrt" and self.warmup < _MIN_WARMUP:
            raise ConfigError(
                f"warmup is {self.warmup}, but the shape inverse-sqrt needs a warmup",
                fix="use a fraction above 0, such as 0.1",
            )

    def __call__(self, fraction: float) -> float:
        if fraction < self.warmup:
            factor = fraction / self.warmup
        else:
            spent = (fraction - self.warmup) / (1 - self.warmup) if self.warmup < 1 else 1.0
            factor = SHAPES[self.shape](spent, self.warmup)
        return self.min_factor + (1 - self.min_factor) * factor if self.min_factor else factor
