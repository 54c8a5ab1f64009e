"""`finetune` of an encoder: a model and labelled data to a model for a task.

The run's folder is the model's folder, and the model in it is the best so far by the dev data.
Beside it lie what it ran with, how it went, and what a resumed run goes on from:

    config.json model.safetensors tokenizer.json …     what the verbs and `transformers` open
    cloze.json                                          what the task is, and how texts are read
    recipe.toml metrics.jsonl data.json report.html state/
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike as OsPath
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import TASK_HEADS
from cloze.config import one_of
from cloze.data.files import PathLike, absolute, fresh_path
from cloze.device import resolve_device
from cloze.errors import InputError
from cloze.make.finetune.features import tune_features
from cloze.make.finetune.job import Tuned, how_it_ended, tune
from cloze.make.finetune.labelled import Labelled, gather, listed_sources
from cloze.make.finetune.recipe import DEFAULT, FinetuneRecipe, finetune_recipe
from cloze.make.finetune.trials import Trial, best_of, finished, planned, run_several, write_trials
from cloze.make.folder import alone, check_apart, clear
from cloze.make.run import (
    UNNAMED,
    Watch,
    check_extras,
    check_piped,
    placed,
    recipe_in,
    write_recipe,
)


@dataclass(frozen=True, kw_only=True)
class Finetuned(Tuned):
    """How it ended: the run whose model the folder holds, and those it was chosen from."""

    folder: Path
    task: str
    measure: str  # the name of the score that chose
    labels: tuple[str, ...]
    trials: tuple[Trial, ...] = ()  # those that were finished
    runs: int = 1  # that were asked for

    @property
    def mean(self) -> float | None:
        """Of the scores of all seeds that were finished; None where none was."""
        if self._seeds:
            return fmean(t.score for t in self._seeds)
        return None if self.stopped else self.score

    @property
    def deviation(self) -> float | None:
        """Of the scores of all seeds, as of a sample."""
        return stdev(t.score for t in self._seeds) if len(self._seeds) > 1 else None

    @property
    def _seeds(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.of_a_seed]


def finetune_encoder(
    task: str,
    model: Model | PathLike,
    train: PathLike | Iterable[Any],
    out: PathLike,
    recipe: FinetuneRecipe | PathLike = DEFAULT,
    *,
    dev: PathLike | Iterable[Any] = (),
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Finetuned:
    """Teach a model a task: classify, tag, answer or choose.

    After every epoch it is judged on the dev data, and the best one is what the folder holds in the
    end. With `run.search` the paper's rates, batches and epochs are tried on dev first; with
    `run.seeds` there are so many runs, and the best one is kept. SIGTERM and Ctrl-C save and end
    it; `resume` goes on, exactly where the budget is in epochs, steps or tokens, and of
    several runs with those that were not finished.

    Args:
        task: what it is to learn.
        model: that it begins with.
        train: files, folders, globs or `-` (standard input) of labelled data; a `datasets` object
            or a list of mappings with the same columns; or examples of `cloze.data.labelled`.
        out: the run's and the model's folder.
        recipe: a `FinetuneRecipe`, the name of one, or its file.
        dev: what it is judged by; left out, a tenth of the training data, chosen by a hash.
        settings: such as "optimizer.lr=3e-5", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    one_of("task", task, TASK_HEADS)
    made = finetune_recipe(recipe, settings=settings)
    named = placed(model) if isinstance(model, str | OsPath) else UNNAMED
    train, dev = listed_sources(train), listed_sources(dev)  # of an iterator nothing is left
    data = replace(made.data, train=_named(train), dev=_named(dev))
    made = replace(made, task=task, model=named, data=data)  # type: ignore[arg-type]
    made.check()
    check_piped([*data.train, *data.dev])
    check_extras(made.run)
    folder = fresh_path(out, force)
    if named != UNNAMED:
        check_apart(folder, named)
    with alone(folder):
        base = _opened(model, made)
        labelled = gather(made, train, dev)
        if made.run.several and not labelled.dev:
            raise InputError("there is nothing to choose by", fix="give dev data, or hold some out")
        watch = watch or Watch()
        watch.say.text(labelled.described())
        plans = planned(made)
        for place in (folder, *(folder / name for name in plans)):
            clear(place)
        write_recipe(folder, made)
        if plans:
            write_trials(folder, {})
        return _run(base, labelled, folder, made, watch)


def resume_finetune(
    out: PathLike, *, settings: Sequence[str] = (), watch: Watch | None = None
) -> Finetuned:
    """Go on with the run in a folder, by the recipe that lies there.

    Of several runs those that are finished are not repeated.
    """
    folder = Path(out)
    made = finetune_recipe(recipe_in(folder), settings=settings)
    check_extras(made.run)
    if UNNAMED in (made.model, *made.data.train, *made.data.dev):
        raise InputError(
            "this run began with objects in Python, which a folder cannot name",
            fix="fine-tune again, or give the model and the data as files",
        )
    check_piped([*made.data.train, *made.data.dev], again=True)
    with alone(folder):
        base = _opened(made.model, made)
        labelled = gather(made, made.data.train, made.data.dev)
        return _run(base, labelled, folder, made, watch or Watch())


def _run(
    base: Model, data: Labelled, folder: Path, recipe: FinetuneRecipe, watch: Watch
) -> Finetuned:
    """The one run or the several of a recipe, from where the folder has come to."""

    def one(plan: FinetuneRecipe, place: Path) -> Tuned:
        tuner = tune_features if plan.transfer.kind == "features" else tune
        return tuner(base, data, place, plan, watch)

    if recipe.run.several:
        ended, trials = run_several(one, folder, recipe)
        return _ended(ended, folder, recipe, data, trials, len(planned(recipe)))
    trials = finished(folder)
    if trials:  # of several runs, and the recipe is that of the best: nothing is left to do
        return _ended(best_of(trials.values()), folder, recipe, data, trials)
    return _ended(one(recipe, folder), folder, recipe, data, {})


def _ended(
    ended: Tuned,
    folder: Path,
    recipe: FinetuneRecipe,
    data: Labelled,
    trials: Mapping[str, Trial],
    runs: int | None = None,
) -> Finetuned:
    return Finetuned(
        **how_it_ended(ended),
        folder=folder,
        task=recipe.task,
        measure=data.measure,
        labels=data.labels,
        trials=tuple(trials.values()),
        runs=runs or len(trials) or 1,
    )


def _named(listed: Sequence[Any]) -> tuple[str, ...]:
    if all(isinstance(one, str | OsPath) for one in listed):
        return tuple(absolute(one) for one in listed)
    return (UNNAMED,)


def _opened(model: Model | PathLike, recipe: FinetuneRecipe) -> Model:
    """The model, if what the recipe asks of it can be."""
    if not isinstance(model, Model):
        model = load(model, device=resolve_device(recipe.run.device), quiet=True)
    recipe.check_for(layers=len(model.module.blocks), positions=model.config.max_positions)
    return model
