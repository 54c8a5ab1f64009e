"""The recipe of fine-tuning: everything a run depends on, in one frozen tree that TOML can say."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cloze.config import check_choices, in_range, number, one_of, override
from cloze.errors import ConfigError
from cloze.files import PathLike
from cloze.make.pretrain.recipe import completed
from cloze.make.recipe.run import UNITS, SelectingRun
from cloze.tasks.features import LAYER_CHOICES
from cloze.text.truncation import Truncation
from cloze.train.config import OptimizerConfig
from cloze.train.schedule import Schedule

DEFAULT = "finetune"
TRANSFERS = ("full", "last-N", "head", "features")
# The paper's grid (Devlin et al. 2018, appendix A.3), for --search.
RATES, BATCHES, EPOCHS = (5e-5, 3e-5, 2e-5), (16, 32), (3, 4)
# Its axes, and the settings that fix them.
AXES = {
    "rate": ["optimizer.lr"],
    "batch": ["run.batch"],
    "epochs": [f"run.{unit}" for unit in UNITS],
}


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
    policy: Truncation | None = None  # for longer texts: head; window for answers and tags
    stride: int | None = None
    context: bool = False  # tags: read a sentence between its neighbours

    def __post_init__(self) -> None:
        check_choices(self)
        if self.length is not None:
            in_range("data.length", self.length, 3, 1 << 20)  # two of them are special
        if self.stride is not None:
            in_range("data.stride", self.stride, 0, 1 << 20)
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
        check_choices(self)
        number("transfer.penalty", self.penalty, 0.0, 1e12)
        if self.dropout is not None:
            number("transfer.dropout", self.dropout, 0.0, 1.0)
        for name, high in (("hidden", 1 << 15), ("depth", 16)):
            in_range(f"transfer.{name}", getattr(self, name), 1, high)
        number("transfer.layer_decay", self.layer_decay, 0.0, 1.0)
        number("transfer.unfreeze", self.unfreeze, 0.0, 1e6)
        if not re.fullmatch(r"[-0-9, ]+", self.layers):
            one_of("transfer.layers", self.layers, LAYER_CHOICES)
        self._check_kind()

    def _check_kind(self) -> None:
        """What would change nothing is refused."""
        features, frozen = self.kind == "features", self.kind in ("head", "features")
        for name, idle, needed, remedy in (
            ("layers", "last", features, "features"),
            ("pooling", "cls", features, "features"),
            ("unfreeze", 0.0, not frozen, "full or last-N"),
            ("layer_decay", 1.0, not frozen, "full or last-N"),
        ):
            value = getattr(self, name)
            if value != idle and not needed:
                raise ConfigError(
                    f"transfer.{name} is {value!r}, and with transfer.kind {self.kind!r} "
                    "it changes nothing",
                    fix=f"leave --{name.replace('_', '-')} out, or use --transfer {remedy}",
                )

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
        check_choices(self)
        number("loss.smoothing", self.smoothing, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(SelectingRun):
    """A run that learns a task."""

    batch: int = 32  # examples to a step
    seeds: int = 1  # so many runs, with seeds from that one on
    search: bool = False  # try the paper's rates, batches and epochs on dev first
    fixed: tuple[str, ...] = ()  # which of rate, batch and epochs were asked for: not searched
    measures: tuple[str, ...] = ()  # whose mean chooses the best; the task's own when left out
    batch_tokens: int = 4096  # computed at once while judging

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch", "seeds", "batch_tokens"):
            in_range(f"run.{name}", getattr(self, name), 1, 1 << 30)
        for axis in self.fixed:
            one_of("run.fixed", axis, AXES)

    @property
    def several(self) -> bool:
        """Whether one run is chosen from several."""
        return self.search or self.seeds > 1


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    """One fine-tuning run."""

    task: Literal["classify", "tag", "answer", "choose"] = "classify"
    model: str = ""
    data: DataTable = field(default_factory=DataTable)
    transfer: TransferTable = field(default_factory=TransferTable)
    loss: LossTable = field(default_factory=LossTable)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=5e-5))
    schedule: Schedule = field(default_factory=lambda: Schedule(warmup=0.1))
    run: FinetuneRun = field(default_factory=FinetuneRun)

    def check(self) -> None:
        """What would change nothing in this task, or cannot be, is refused."""
        if self.data.context and self.task != "tag":
            raise ConfigError(
                f"data.context is for tags, and the task is {self.task}", fix="leave --context out"
            )
        features = self.transfer.kind == "features"
        if features and self.task not in ("classify", "tag"):
            raise ConfigError(
                f"features cannot learn to {self.task}", fix="use transfer full, last-N or head"
            )
        if features and self.run.search:
            raise ConfigError(
                "a search tries rates and epochs of fine-tuning, which are not those of features",
                fix="leave --search out and try transfer.penalty or --rate by hand, "
                "or use --transfer full, last-N or head",
            )
        if self.task in ("answer", "choose"):
            self.check_loss(f"the task is {self.task}", smoothing=self.task == "choose")

    def check_loss(self, why: str, *, smoothing: bool = False) -> None:
        """Refuse weights of classes, and smoothing unless it has a meaning."""
        weighted = self.loss.class_weights != "none"
        if weighted or (self.loss.smoothing and not smoothing):
            name = "class_weights" if weighted else "smoothing"
            raise ConfigError(
                f"loss.{name} is for classes, and {why}",
                fix=f"leave --{name.replace('_', '-')} out",
            )

    def check_for(self, *, layers: int, positions: int) -> None:
        """Refuse what a model of so many layers and positions cannot do."""
        if self.data.length is not None and self.data.length > positions:
            raise ConfigError(
                f"data.length is {self.data.length:,}, and the model has {positions:,} positions",
                fix=f"use --length {positions} or less, or leave it out",
            )
        kind = self.transfer.kind
        if kind.startswith("last-") and int(kind.removeprefix("last-")) > layers:
            raise ConfigError(
                f"transfer.kind is {kind!r}, and the model has {layers} layers",
                fix=f"use last-{layers} or less, or full",
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
    """The recipe of a name or a file, with flags (a nested mapping) and `a.b=c` settings on top.

    What these say of the axes of a search is fixed in it.
    """
    made = completed(FinetuneRecipe, source, flags, settings)
    if not made.run.search:
        return made
    said = override(flags or {}, settings)
    given = {f"{table}.{name}" for table in ("optimizer", "run") for name in said.get(table, {})}
    fixed = {axis for axis, paths in AXES.items() if given.intersection(paths)}
    return made.with_run(fixed=tuple(sorted(fixed.union(made.run.fixed))))
