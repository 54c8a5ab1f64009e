"""Runs that keep the best of the models that they evaluate.

Fine-tuning, neural language models and translators are such runs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cloze.config import to_mapping
from cloze.errors import ConfigError
from cloze.make.recipe.run import SelectingRun
from cloze.objectives.core import Learner
from cloze.train.averaging import WeightAverage
from cloze.train.budget_check import BudgetAdvice
from cloze.train.callbacks import CallbackList
from cloze.train.config import OptimizerConfig
from cloze.train.distributed import SINGLE_PROCESS, DistributedContext, wrap_distributed
from cloze.train.fit import Evaluate, Steps, TrainingJob, fit
from cloze.train.loop import BatchSource
from cloze.train.optim import Factor, build_optimizer
from cloze.train.result import RunResult
from cloze.train.schedule import Progress, Schedule
from cloze.train.state import TrainState


class SelectingRecipe(Protocol):
    """A recipe whose run keeps the best model."""

    @property
    def optimizer(self) -> OptimizerConfig: ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def run(self) -> SelectingRun: ...


def new_state(
    learner: Learner,
    recipe: SelectingRecipe,
    lr_factor: Factor = lambda _: 1.0,
    *,
    distributed: DistributedContext = SINGLE_PROCESS,
) -> TrainState:
    """The state before the first step; `lr_factor` scales the learning rate of each parameter.

    The model is on its device already; several processes average its gradients.
    """
    is_parallel = distributed.world_size > 1
    return TrainState(
        learner=wrap_distributed(learner, distributed) if is_parallel else learner,
        model=learner.model,
        optimizer=build_optimizer(learner.model, recipe.optimizer, lr_factor),
        config=recipe.run,
        distributed=distributed,
    )


def fit_best(
    state: TrainState,
    recipe: SelectingRecipe,
    *,
    out: Path,
    batches: BatchSource[Any],
    steps_per_epoch: int,
    fingerprint: Mapping[str, Any],
    evaluate: Evaluate | None,
    save_model: Callable[[], object],
    callbacks: CallbackList,
    wrap_steps: Callable[[Steps, Progress], Steps] = lambda steps, _: steps,
    faster_steps: str = "a smaller batch size (--batch-size)",
    unit: str = "tokens",
) -> RunResult:
    """Train, evaluate as the recipe says, and save the best model.

    See `TrainingJob` for the arguments; `faster_steps` is advice for runs whose steps are too slow.
    """
    run = recipe.run
    if run.average_patience is not None:
        if evaluate is None:
            raise ConfigError(
                "run.average_patience is set, but there are no dev data to evaluate by",
                fix="give dev data (--dev), or leave it out",
            )
        average = WeightAverage(state, run.average_patience)
        evaluate = partial(average.evaluate, evaluate)
        save_model = partial(_save_average, average, save_model)
        wrap_steps = partial(_average_steps, average, wrap_steps)
    return fit(
        TrainingJob(
            out=out,
            state=state,
            batches=batches,
            fingerprint=fingerprint,
            budget=run.budget(steps_per_epoch),
            schedule=recipe.schedule,
            options=run,
            callbacks=callbacks,
            settings=to_mapping(recipe),  # type: ignore[arg-type]  # a dataclass
            evaluate=evaluate,
            eval_every=run.eval_interval(lambda: steps_per_epoch),
            save_model=save_model,
            patience=run.patience,
            wrap_steps=wrap_steps,
            unit=unit,
            advice=BudgetAdvice(
                faster_steps=faster_steps,
                more_steps="more steps (--steps; steps= in Python)"
                if run.steps
                else "more epochs (--epochs; epochs= in Python), or smaller batches",
                steps_per_epoch=steps_per_epoch,
            ),
        )
    )


def _save_average(average: WeightAverage, save_model: Callable[[], object]) -> None:
    with average.swap_in():
        save_model()


def _average_steps(
    average: WeightAverage,
    wrap_steps: Callable[[Steps, Progress], Steps],
    steps: Steps,
    start: Progress,
) -> Steps:
    return average.average_steps(wrap_steps(steps, start))
