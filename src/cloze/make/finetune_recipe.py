"""The recipe of fine-tuning: everything a run depends on, in one frozen tree that TOML can say."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cloze.config import in_range, number, one_of
from cloze.data.files import PathLike
from cloze.errors import ConfigError
from cloze.make.recipe import budget_of, completed
from cloze.tasks.layers import CHOICES
from cloze.text.length import POLICIES
from cloze.train.budget import Budget
from cloze.train.optim import OptimiserConfig
from cloze.train.schedule import Schedule
from cloze.train.state import LoopConfig

DEFAULT = "finetune"
TRANSFERS = ("full", "last-N", "head", "features")
# The paper's grid (Devlin et al. 2018, appendix A.3), for --search.
RATES, BATCHES, EPOCHS = (5e-5, 3e-5, 2e-5), (16, 32), (3, 4)


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """What is learned from, and how it is read."""

    train: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    hold_out: float = 0.1  # of the training data to judge by, where there are none for it
    text: str | None = None  # columns of a table, by name or number; found where left out
    pair: str | None = None
    label: str | None = None
    number: bool | None = None  # the labels are numbers; found where left out
    column: str | None = None  # of the tags
    scheme: str | None = None
    skip_bad: bool = False
    length: int | None = None  # tokens in a sequence; the model's own limit where left out
    policy: str | None = None  # for longer texts: head; window for answers and tags
    stride: int | None = None
    context: bool = False  # tags: read a sentence between its neighbours

    def __post_init__(self) -> None:
        if self.policy is not None:
            one_of("data.policy", self.policy, POLICIES)
        if not 0 <= self.hold_out < 1:
            raise ConfigError(f"data.hold_out is {self.hold_out}", fix="use a share below 1")


@dataclass(frozen=True, kw_only=True)
class TransferTable:
    """How much of the model learns.

    full: all of it; last-N: the last N layers; head: the head on a frozen body; features: vectors
    are made once and a small model learns from them.
    """

    kind: str = "full"
    layer_decay: float = 1.0  # each layer learns at this share of the rate above it
    unfreeze: float = 0.0  # epochs from one layer's thaw to the next, from the top; 0: all at once
    dropout: float | None = None  # another than the model's
    layers: str = "last"  # features: one of the six choices, or numbers
    pooling: Literal["cls", "mean", "max"] = "cls"  # features of texts
    penalty: float = 1.0  # features: L2 on the weights of a logistic regression, as 1/C
    hidden: int = 768  # features of words: of a BiLSTM, each way
    depth: int = 2

    def __post_init__(self) -> None:
        if not re.fullmatch(r"full|head|features|last-[1-9][0-9]*", self.kind):
            raise ConfigError(
                f"transfer.kind is {self.kind!r}", fix=f"use one of {', '.join(TRANSFERS)}"
            )
        number("transfer.layer_decay", self.layer_decay, 0.0, 1.0)
        number("transfer.unfreeze", self.unfreeze, 0.0, 1e6)
        if not re.fullmatch(r"[-0-9, ]+", self.layers):
            one_of("transfer.layers", self.layers, CHOICES)

    def trained(self, layers: int) -> int:
        """How many layers learn, from the top."""
        if self.kind.startswith("last-"):
            return min(layers, int(self.kind.removeprefix("last-")))
        return layers if self.kind == "full" else 0


@dataclass(frozen=True, kw_only=True)
class LossTable:
    """What counts how much."""

    class_weights: Literal["none", "balanced"] = "none"  # balanced: each class as much as another
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        number("loss.smoothing", self.smoothing, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """How long, how exactly, and what is kept."""

    batch: int = 32  # examples to a step
    epochs: float | None = None
    steps: int | None = None
    tokens: int | None = None
    minutes: float | None = None
    seed: int = 0
    seeds: int = 1  # so many runs, with seeds from that one on
    search: bool = False  # try the paper's rates, batches and epochs on dev first
    device: str | None = None
    precision: Literal["float32", "bf16"] = "float32"
    clip_norm: float = 1.0
    measures: tuple[str, ...] = ()  # whose mean chooses the best; the task's own when left out
    patience: int | None = None  # end after so many evaluations without a better one
    evaluations: int = 1  # in an epoch
    batch_tokens: int = 4096  # computed at once while judging
    log_every: int = 10
    save_minutes: float = 10.0
    save_every: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "seeds", "evaluations", "log_every", "batch_tokens"):
            in_range(f"run.{name}", getattr(self, name), 1, 1 << 30)
        if self.patience is not None:
            in_range("run.patience", self.patience, 1, 1 << 30)

    def budget(self, steps_per_epoch: int) -> Budget:
        """What may be spent."""
        return budget_of(self, steps_per_epoch)


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    """One fine-tuning run."""

    task: Literal["classify", "tag", "answer", "choose"] = "classify"
    model: str = ""
    data: DataTable = field(default_factory=DataTable)
    transfer: TransferTable = field(default_factory=TransferTable)
    loss: LossTable = field(default_factory=LossTable)
    optimiser: OptimiserConfig = field(default_factory=lambda: OptimiserConfig(rate=5e-5))
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=0.1))
    run: RunTable = field(default_factory=RunTable)

    def loop(self) -> LoopConfig:
        """How each step is taken."""
        return LoopConfig(
            seed=self.run.seed, precision=self.run.precision, clip_norm=self.run.clip_norm
        )

    def with_run(self, **changes: Any) -> "FinetuneRecipe":  # noqa: ANN401
        """The same with other settings of the run."""
        return replace(self, run=replace(self.run, **changes))


def finetune_recipe(
    source: FinetuneRecipe | PathLike = DEFAULT,
    *,
    flags: dict[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> FinetuneRecipe:
    """The recipe of a name or a file, with flags (a nested mapping) and `a.b=c` settings on top."""
    return completed(FinetuneRecipe, source, flags, settings)
