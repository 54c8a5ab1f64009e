"""The table `run` of every recipe: budget, evaluation cadence, saving and logging."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from cloze.config import Flag, Help, Range, to_mapping
from cloze.errors import ConfigError
from cloze.files import replace_non_finite
from cloze.train.config import LoopConfig, Parallelism
from cloze.train.schedule import Budget

UNITS = ("steps", "tokens", "minutes", "epochs")  # of a budget
CADENCES = ("eval_every", "evals_per_epoch")
# A run has one setting of each of these groups: a given one replaces that of the recipe.
EXCLUSIVE = (UNITS, CADENCES)

# The settings that may change when a run is resumed: where it runs, what it logs and saves, and how
# it reacts to a bad step. Any other would make it a different run. Texts may have moved: the
# training state holds a digest of their contents.
CHANGEABLE = frozenset(
    {
        "run.device",
        "run.gradient_checkpointing",
        "run.fast",  # the state itself says where batches were made
        "run.parallel",
        "run.guard",
        "run.log_every",
        "run.eval_every",
        "run.evals_per_epoch",
        "run.eval_batches",
        "run.eval_rows",
        "run.save_minutes",
        "run.save_every",
        "run.keep_states",
        "run.tensorboard",
        "data.sources",
        "data.folder",
        "data.workers",
        "data.engine",
        "data.address",
    }
)


Count = Annotated[int, Range(1, 1 << 40)]


@dataclass(frozen=True, kw_only=True)
class RunConfig(LoopConfig):
    """What every training run has: budget, evaluation, saving and logging."""

    DEFAULT_CADENCE: ClassVar[dict[str, float]] = {"evals_per_epoch": 1.0}

    steps: Annotated[
        int | None,
        Range(1, 1 << 60),
        Help("Training budget in steps; give one of --steps, --tokens, --minutes and --epochs"),
        Flag("--steps", "N"),
    ] = None
    tokens: Annotated[
        int | None,
        Range(1, 1 << 60),
        Help(
            "Training budget in tokens, padding not counted (default: set by --steps or the recipe)"
        ),
        Flag("--tokens", "N"),
    ] = None
    minutes: Annotated[
        float | None,
        Range(above=0, below=inf),
        Help("Training budget in minutes (default: set by --steps or the recipe)"),
        Flag("--minutes", "N"),
    ] = None
    epochs: Annotated[
        float | None,
        Range(above=0, below=inf),
        Help("Number of passes over the training data"),
        Flag("--epochs", "N"),
    ] = None
    device: Annotated[
        str | None,
        Help("Device to train on: cpu, cuda, cuda:1, mps (default: auto-detected)"),
        Flag("--device", "NAME"),
    ] = None
    eval_every: Annotated[Count | None, Help("Number of steps between two evaluations")] = None
    evals_per_epoch: Annotated[
        float | None, Range(above=0, below=inf), Help("Number of evaluations in an epoch")
    ] = None
    log_every: Annotated[Count, Help("Number of steps between two rows of metrics.jsonl")] = 10
    save_minutes: Annotated[
        float, Range(0, inf), Help("Minutes between two saved training states")
    ] = 10.0
    save_every: Annotated[
        Count | None,
        Help("Number of steps between two saved training states (default: by time only)"),
        Flag("--save-every", "STEPS"),
    ] = None
    tensorboard: Annotated[
        bool, Help("Also write the metrics as TensorBoard logs"), Flag("--tensorboard")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for group in EXCLUSIVE:
            given = [name for name in group if getattr(self, name) is not None]
            if len(given) > 1:
                raise ConfigError(
                    f"{' and '.join(given)} are both given", fix=f"give one of {', '.join(group)}"
                )
        if all(getattr(self, name) is None for name in CADENCES):
            for name, value in self.DEFAULT_CADENCE.items():
                object.__setattr__(self, name, value)

    def check_budget(self) -> None:
        """Raise an error if the run has no budget."""
        if all(getattr(self, unit) is None for unit in UNITS):
            raise ConfigError(
                "the run has no budget", fix="give --minutes, --steps, --tokens or --epochs"
            )

    def eval_interval(self, steps_per_epoch: Callable[[], float]) -> int:
        """The number of steps from one evaluation to the next."""
        if self.eval_every is not None:
            return self.eval_every
        assert self.evals_per_epoch is not None
        return max(1, int(steps_per_epoch() / self.evals_per_epoch))

    def _budget(self, counted: Literal["steps", "tokens"], per_epoch: Callable[[], int]) -> Budget:
        """The budget; epochs are counted in steps or in tokens."""
        self.check_budget()
        given = {unit: getattr(self, unit) for unit in UNITS}
        epochs = given.pop("epochs")
        if epochs is not None:
            given[counted] = max(1, round(epochs * per_epoch()))
        return Budget(**given)


@dataclass(frozen=True, kw_only=True)
class PretrainRun(RunConfig):
    """A run on raw text, which keeps its last model."""

    DEFAULT_CADENCE: ClassVar[dict[str, float]] = {"eval_every": 250}

    batch_tokens: Annotated[
        int,
        Range(1, 1 << 31),
        Help("Number of tokens in a batch, padding included"),
        Flag("--batch-tokens", "N"),
    ] = 4096
    accumulate: Annotated[
        int,
        Range(1, 1 << 20),
        Help("Number of batches in a step (gradient accumulation), in total over all processes"),
        Flag("--accumulate", "N"),
    ] = 1
    gradient_checkpointing: Annotated[
        bool, Help("Recompute activations in the backward pass: less memory, more time")
    ] = False
    fast: Annotated[
        bool | None,
        Help("Make batches on the device and compile the model (default: on one GPU in bfloat16)"),
    ] = None
    parallel: Annotated[
        Parallelism, Help("How several processes train one model: ddp (copies) or fsdp (shards)")
    ] = "ddp"
    eval_batches: Annotated[Count, Help("Maximum number of batches in an evaluation")] = 32
    keep_states: Annotated[Count, Help("Number of training states to keep")] = 2

    def budget(self, tokens_per_epoch: Callable[[], int]) -> Budget:
        """How long to train."""
        return self._budget("tokens", tokens_per_epoch)


@dataclass(frozen=True, kw_only=True)
class SelectingRun(RunConfig):
    """A run that keeps the best of the models it evaluates."""

    patience: Annotated[
        Count | None,
        Help("Stop after this many evaluations without improvement (default: never)"),
        Flag("--patience", "N"),
    ] = None

    average_patience: Annotated[
        Count | None,
        Help(
            "Average the weights from the time on when so many evaluations have not improved "
            "(NT-ASGD with the optimizer sgd; default: never)"
        ),
    ] = None

    def budget(self, steps_per_epoch: int) -> Budget:
        """How long to train."""
        return self._budget("steps", lambda: steps_per_epoch)


def run_fingerprint(recipe: Any, *sources: str) -> dict[str, Any]:  # noqa: ANN401 (any recipe)
    """The settings that must be equal for a run to be resumed exactly.

    Not those of `CHANGEABLE`, nor `sources`, the settings that name the data ("data.train"): a
    digest of the data is compared instead.
    """
    values = to_mapping(recipe)
    for path in (*CHANGEABLE, *sources):
        table, _, name = path.rpartition(".")
        (values.get(table, {}) if table else values).pop(name, None)
    # JSON has no infinity, which stands for no clipping
    fingerprint: dict[str, Any] = replace_non_finite(values)
    return fingerprint
