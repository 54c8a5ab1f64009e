"""The table `run` of a recipe: how long a run is, how exactly it computes, and what is kept."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from cloze.config import check_choices, in_range, number
from cloze.errors import ConfigError
from cloze.train.budget import Budget
from cloze.train.guard import Action
from cloze.train.parallel import Way
from cloze.train.precision import precision_named
from cloze.train.state import LoopConfig

UNITS = ("steps", "tokens", "minutes", "epochs")  # of a budget
MOST = 1 << 40  # of anything that is counted

# The settings that may differ when a run is resumed: where it runs, what it shows and keeps, and
# what it does about a bad step. All others make it another run. Of the texts a state keeps a digest
# of what they hold, so that they may be found elsewhere.
FREE = frozenset(
    {
        "run.device",
        "run.recompute",
        "run.fast",  # the state itself says where batches were made
        "run.parallel",
        "run.guard",
        "run.log_every",
        "run.evaluate_every",
        "run.evaluate_batches",
        "run.save_minutes",
        "run.save_every",
        "run.keep",
        "run.tensorboard",
        "corpus.sources",
        "corpus.folder",
        "corpus.workers",
    }
)


@dataclass(frozen=True, kw_only=True)
class StartTable:
    """The table `model` of a language model or a translator: one to go on from, if any."""

    init_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class AnyRun:
    """What every run is told."""

    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    epochs: float | None = None
    seed: int = 0
    device: str | None = None  # the best there is when left out
    precision: str = "float32"  # or bf16
    clip_norm: float = 1.0
    guard: Action = "stop"
    log_every: int = 10
    save_minutes: float = 10.0
    save_every: int | None = None  # steps
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        object.__setattr__(self, "precision", precision_named(self.precision))
        given = {unit: getattr(self, unit) for unit in UNITS if getattr(self, unit) is not None}
        if len(given) > 1:
            raise ConfigError(
                f"a budget in {' and in '.join(given)}",
                fix="give one of steps, tokens, minutes, epochs",
            )
        for unit, value in given.items():
            if unit in ("steps", "tokens"):
                in_range(f"run.{unit}", value, 1, 1 << 60)
            elif not 0 < value < inf:
                raise ConfigError(f"run.{unit} is {value}", fix="give a number above zero")
        in_range("run.log_every", self.log_every, 1, MOST)
        number("run.save_minutes", self.save_minutes, 0.0, inf)
        if self.save_every is not None:
            in_range("run.save_every", self.save_every, 1, MOST)
        self.loop()

    def check_budget(self) -> None:
        """Refuse a run without an end, before it begins."""
        if all(getattr(self, unit) is None for unit in UNITS):
            raise ConfigError(
                "the run has no budget", fix="give --minutes, --steps, --tokens or --epochs"
            )

    def loop(self) -> LoopConfig:
        """How each step is taken."""
        return LoopConfig(
            seed=self.seed,
            precision=precision_named(self.precision),
            clip_norm=self.clip_norm,
            guard=self.guard,
        )

    def _budget(self, counted: Literal["steps", "tokens"], per_epoch: Callable[[], int]) -> Budget:
        """What may be spent; epochs are counted in steps or in tokens, so many to each."""
        self.check_budget()
        given = {unit: getattr(self, unit) for unit in UNITS}
        epochs = given.pop("epochs")
        if epochs is not None:
            given[counted] = max(1, round(epochs * per_epoch()))
        return Budget(**given)


@dataclass(frozen=True, kw_only=True)
class RunTable(AnyRun):
    """A run on raw text."""

    recompute: bool = False  # gradient checkpointing
    fast: bool | None = None  # text on the device, a compiled model; unsaid, on a GPU in bf16
    parallel: Way = "ddp"
    evaluate_every: int = 250
    evaluate_batches: int = 32  # at most, of batch.tokens each
    keep: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("evaluate_every", "evaluate_batches", "keep"):
            in_range(f"run.{name}", getattr(self, name), 1, MOST)

    def budget(self, tokens_per_epoch: Callable[[], int]) -> Budget:
        """What may be spent."""
        return self._budget("tokens", tokens_per_epoch)


@dataclass(frozen=True, kw_only=True)
class JudgedRun(AnyRun):
    """A run that is judged as it goes and keeps its best model (`make.course`)."""

    patience: int | None = None  # end after so many judgements without a better one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience is not None:
            in_range("run.patience", self.patience, 1, MOST)

    def budget(self, steps_per_epoch: int) -> Budget:
        """What may be spent."""
        return self._budget("steps", lambda: steps_per_epoch)
