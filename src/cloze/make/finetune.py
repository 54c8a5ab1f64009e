"""`finetune`: a model and labelled data to a model for a task.

The run's folder is the model's folder, and the model in it is the best so far by the dev data.
Beside it lie what it ran with, how it went, and what a resumed run goes on from:

    config.json model.safetensors tokenizer.json …     what the verbs and `transformers` open
    cloze.json                                          what the task is, and how texts are read
    recipe.toml metrics.jsonl data.json report.html state/
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import inf, isnan
from os import PathLike as OsPath
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cloze.checkpoint.atomic import model_told, whole_files
from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.checkpoint.task import TASKS
from cloze.config import one_of
from cloze.data.files import LOCK, PathLike, absolute, fresh_path
from cloze.device import device_of
from cloze.errors import ConfigError, FolderError, InputError
from cloze.files import read_json, read_text, write_json, write_text
from cloze.make.features import tune_features
from cloze.make.finetune_recipe import (
    BATCHES,
    DEFAULT,
    EPOCHS,
    RATES,
    FinetuneRecipe,
    finetune_recipe,
)
from cloze.make.folder import alone, check_apart, clear, clear_model
from cloze.make.labelled import Labelled, gather, listed_sources
from cloze.make.run import (
    RECIPE,
    STATE,
    TRIALS,
    UNNAMED,
    Watch,
    check_extras,
    check_piped,
    placed,
    recipe_in,
    write_recipe,
)
from cloze.make.run_tables import UNITS
from cloze.make.tuning import Tuned, tune

SEED = "seed-"  # and its number: the name of a run


@dataclass(frozen=True, kw_only=True)
class Trial(Tuned):
    """One of several runs, come to its end."""

    name: str
    rate: float
    batch: int
    epochs: float | None
    seed: int
    score: float


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
        return [trial for trial in self.trials if trial.name.startswith(SEED)]


def finetune(
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
        settings: such as "optimiser.rate=3e-5", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    one_of("task", task, TASKS)
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
        plans = _plans(made)
        for place in (folder, *(folder / name for name in plans)):
            clear(place)
        write_recipe(folder, made)
        if plans:
            _list(folder, {})
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
        return _several(one, folder, recipe, data)
    trials = _finished(folder)
    if trials:  # of several runs, and the recipe is that of the best: nothing is left to do
        return _ended(_best(trials.values()), folder, recipe, data, trials)
    return _ended(one(recipe, folder), folder, recipe, data, {})


def _several(
    one: Callable[[FinetuneRecipe, Path], Tuned],
    folder: Path,
    recipe: FinetuneRecipe,
    data: Labelled,
) -> Finetuned:
    """Search first, then the seeds with what was found; the folder gets the best of the last.

    What was finished before is not run again. A signal ends it all: the folder then has the best of
    the finished, and still the recipe that was asked for, to go on by.
    """
    trials, grid = _finished(folder), _grid(recipe)
    chosen = recipe.with_run(seeds=1, search=False, fixed=())
    cut = _cut_short(one, folder, grid, trials)
    if cut is None:
        if grid:
            chosen = grid[_best(trials[name] for name in grid).name]
        seeds = {name: chosen.with_run(seed=n) for name, n in _seeds(recipe).items()}
        cut = _cut_short(one, folder, seeds, trials)
    shown: tuple[str, Tuned] | None = cut
    if trials:
        best = _best(trials.values())
        shown = best.name, replace(best, stopped=cut[1].stopped if cut else None)
    assert shown is not None
    name, ended = shown
    others = shutil.ignore_patterns(RECIPE, STATE, LOCK)
    # renamed into the folder, not written over: a model that was opened from there stays as it was
    with model_told(folder), whole_files(folder) as work:
        shutil.copytree(folder / name, work, dirs_exist_ok=True, ignore=others)
    if cut is None:
        for trial in trials:
            clear_model(folder / trial)
        # last: by it one knows that all is done
        write_text(folder / RECIPE, read_text(folder / name / RECIPE))
    return _ended(ended, folder, recipe, data, trials, len(_plans(recipe)))


def _cut_short(
    one: Callable[[FinetuneRecipe, Path], Tuned],
    folder: Path,
    plans: Mapping[str, FinetuneRecipe],
    trials: dict[str, Trial],
) -> tuple[str, Tuned] | None:
    """Run what is not among `trials`, and add it there; the run that a signal ended, if one did."""
    for name in [name for name in plans if name not in trials]:
        with alone(folder / name):
            write_recipe(folder / name, plans[name])
            ended = one(plans[name], folder / name)
            if ended.stopped:
                return name, ended
            trials[name] = _trial(name, plans[name], ended)
            _list(folder, trials)
            shutil.rmtree(folder / name / STATE, ignore_errors=True)
        for worse in trials.keys() - {_best(trials.values()).name}:
            clear_model(folder / worse)  # how it went stays
    return None


def _plans(recipe: FinetuneRecipe) -> list[str]:
    """The names of all runs, where there are several."""
    return [*_grid(recipe), *_seeds(recipe)]


def _seeds(recipe: FinetuneRecipe) -> dict[str, int]:
    first, count = recipe.run.seed, recipe.run.seeds
    return {f"{SEED}{n}": n for n in range(first, first + count)} if count > 1 else {}


def _grid(recipe: FinetuneRecipe) -> dict[str, FinetuneRecipe]:
    """Devlin et al. 2018, appendix A.3: batch 16 or 32, three rates, three or four epochs.

    What was asked for (`run.fixed`) is not searched.
    """
    if not recipe.run.search:
        return {}
    fixed, plain = recipe.run.fixed, recipe.with_run(seeds=1, search=False, fixed=())
    rates = (recipe.optimiser.rate,) if "rate" in fixed else RATES
    batches = (recipe.run.batch,) if "batch" in fixed else BATCHES
    budgets: dict[str, dict[str, Any]] = {
        f"-epochs-{n}": dict.fromkeys(UNITS) | {"epochs": float(n)} for n in EPOCHS
    }
    if "epochs" in fixed:
        budgets = {"": {}}
    if len(rates) * len(batches) * len(budgets) == 1:
        raise ConfigError(
            "rate, batch and epochs are given, and there is nothing to search",
            fix="leave one of them out, or leave --search out (run.search)",
        )
    return {
        f"rate-{rate:g}-batch-{batch}{name}": replace(
            plain.with_run(batch=batch, **budget), optimiser=replace(recipe.optimiser, rate=rate)
        )
        for rate, batch, (name, budget) in product(rates, batches, budgets.items())
    }


def _trial(name: str, recipe: FinetuneRecipe, ended: Tuned) -> Trial:
    assert ended.score is not None  # it came to its end, and there are dev data
    return Trial(
        **_plain(ended),
        name=name,
        rate=recipe.optimiser.rate,
        batch=recipe.run.batch,
        epochs=recipe.run.epochs,
        seed=recipe.run.seed,
    )


def _list(folder: Path, trials: Mapping[str, Trial]) -> None:
    """Of several runs those that are finished; by this file one knows that there are several."""
    write_json(folder / TRIALS, [asdict(trial) for trial in trials.values()])


def _finished(folder: Path) -> dict[str, Trial]:
    """Of several runs those that came to their end, by name."""
    path, fix = folder / TRIALS, "fine-tune again, with --force (force=True in Python)"
    rows = read_json(path, fix=fix) if path.is_file() else []
    try:
        return {row["name"]: Trial(**row) for row in rows}
    except (TypeError, KeyError):
        raise FolderError(f"{path} does not list the runs that are finished", fix=fix) from None


def _best(trials: Iterable[Trial]) -> Trial:
    """Of the seeds, where there are some: they have what the search found."""
    some = list(trials)
    last = [trial for trial in some if trial.name.startswith(SEED)] or some
    return max(last, key=lambda trial: -inf if isnan(trial.score) else trial.score)


def _ended(
    ended: Tuned,
    folder: Path,
    recipe: FinetuneRecipe,
    data: Labelled,
    trials: Mapping[str, Trial],
    runs: int | None = None,
) -> Finetuned:
    return Finetuned(
        **_plain(ended),
        folder=folder,
        task=recipe.task,
        measure=data.measure,
        labels=data.labels,
        trials=tuple(trials.values()),
        runs=runs or len(trials) or 1,
    )


def _plain(ended: Tuned) -> dict[str, Any]:
    """How a run ended, and nothing else."""
    return {field.name: getattr(ended, field.name) for field in fields(Tuned)}


def _named(listed: Sequence[Any]) -> tuple[str, ...]:
    if all(isinstance(one, str | OsPath) for one in listed):
        return tuple(absolute(one) for one in listed)
    return (UNNAMED,)


def _opened(model: Model | PathLike, recipe: FinetuneRecipe) -> Model:
    """The model, if what the recipe asks of it can be."""
    if not isinstance(model, Model):
        model = load(model, device=device_of(recipe.run.device), quiet=True)
    recipe.check_for(layers=len(model.module.blocks), positions=model.config.positions)
    return model
