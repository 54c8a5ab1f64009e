"""The table `run` of a run that is judged as it goes and keeps its best model (`make.course`)."""

from dataclasses import dataclass
from typing import Literal

from cloze.config import in_range
from cloze.errors import ConfigError
from cloze.make.recipe_tables import UNITS
from cloze.train.budget import Budget
from cloze.train.state import LoopConfig


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """How long, how exactly, and what is kept."""

    epochs: float | None = None
    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    seed: int = 0
    device: str | None = None
    precision: Literal["float32", "bf16"] = "float32"
    clip_norm: float = 1.0
    patience: int | None = None  # end after so many judgements without a better one
    log_every: int = 10
    save_minutes: float = 10.0
    save_every: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        in_range("run.log_every", self.log_every, 1, 1 << 30)
        if self.patience is not None:
            in_range("run.patience", self.patience, 1, 1 << 30)

    def budget(self, steps_per_epoch: int) -> Budget:
        """What may be spent."""
        given = {unit: getattr(self, unit) for unit in UNITS}
        if all(value is None for value in given.values()):
            raise ConfigError("the run has no budget", fix="give epochs, steps, tokens or minutes")
        epochs = given.pop("epochs")
        if all(value is None for value in given.values()):
            return Budget(steps=max(1, round(epochs * steps_per_epoch)))
        return Budget(**given)

    def loop(self) -> LoopConfig:
        """How each step is taken."""
        return LoopConfig(seed=self.seed, precision=self.precision, clip_norm=self.clip_norm)
