"""The training budget in steps, tokens or minutes."""

import math
from dataclasses import dataclass

from cloze.errors import ConfigError

SECONDS = 60


@dataclass(frozen=True)
class Progress:
    """How far a run has come, including before it was resumed, over all processes."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A training budget: exactly one of the three."""

    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise ConfigError(
                f"the budget has {' and '.join(given) or 'no limit'}",
                fix="give exactly one of steps, tokens, minutes",
            )
        ((name, value),) = given.items()
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"the budget is {value} {name}", fix="give a number above zero")

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
