"""How long to train: in steps, in tokens or in minutes."""

import math
from dataclasses import dataclass

from cloze.errors import ConfigError

SECONDS = 60


@dataclass(frozen=True)
class Progress:
    """How far a run has come, over all its sittings and all its processes."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent; exactly one of the three."""

    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        if len(given) != 1:
            raise ConfigError(
                f"a budget of {' and '.join(given) or 'nothing'}",
                fix="give exactly one of steps, tokens, minutes",
            )
        ((name, value),) = given.items()
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"a budget of {value} {name}", fix="give a number above zero")

    def fraction(self, progress: Progress) -> float:
        """The share that is spent, from 0 to 1."""
        return self._share(progress.step, progress.tokens, progress.seconds)

    def midway(self, progress: Progress, tokens: int) -> float:
        """The share that will be spent in the middle of the next step, of so many tokens.

        A schedule read there wastes neither the first step nor the last on a rate of zero. How long
        a step will take is not known, so minutes are read as they stand.
        """
        return self._share(progress.step + 0.5, progress.tokens + tokens / 2, progress.seconds)

    def spent(self, progress: Progress) -> bool:
        return self.fraction(progress) >= 1

    def _share(self, step: float, tokens: float, seconds: float) -> float:
        if self.steps is not None:
            return min(step / self.steps, 1.0)
        if self.tokens is not None:
            return min(tokens / self.tokens, 1.0)
        assert self.minutes is not None
        return min(seconds / (SECONDS * self.minutes), 1.0)
