"""Several runs of one fine-tuning: the paper's search, then the seeds; the best is kept.

Each has a folder of its own inside the run's, and `trials.json` lists those that are finished.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf, isnan
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import model_told, whole_files
from cloze.data.files import LOCK
from cloze.errors import ConfigError, FolderError
from cloze.files import read_json, read_text, write_json, write_text
from cloze.make.finetune.job import Tuned, how_it_ended
from cloze.make.finetune.recipe import BATCHES, EPOCHS, RATES, FinetuneRecipe
from cloze.make.folder import alone, clear_model
from cloze.make.recipe.run import UNITS
from cloze.make.run import RECIPE, STATE, TRIALS, write_recipe

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

    @property
    def of_a_seed(self) -> bool:
        """Whether it is one of several seeds; else the search tried it."""
        return self.name.startswith(SEED)


def run_several(
    one: Callable[[FinetuneRecipe, Path], Tuned], folder: Path, recipe: FinetuneRecipe
) -> tuple[Tuned, dict[str, Trial]]:
    """Search first, then the seeds with what was found; the folder gets the best of the last.

    What was finished before is not run again. A signal ends it all: the folder then has the best of
    the finished, and still the recipe that was asked for, to go on by.
    """
    trials, grid = finished(folder), _grid(recipe)
    chosen = recipe.with_run(seeds=1, search=False, fixed=())
    cut = _cut_short(one, folder, grid, trials)
    if cut is None:
        if grid:
            chosen = grid[best_of(trials[name] for name in grid).name]
        seeds = {name: chosen.with_run(seed=n) for name, n in _seeds(recipe).items()}
        cut = _cut_short(one, folder, seeds, trials)
    shown: tuple[str, Tuned] | None = cut
    if trials:
        best = best_of(trials.values())
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
    return ended, trials


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
            write_trials(folder, trials)
            shutil.rmtree(folder / name / STATE, ignore_errors=True)
        for worse in trials.keys() - {best_of(trials.values()).name}:
            clear_model(folder / worse)  # how it went stays
    return None


def planned(recipe: FinetuneRecipe) -> list[str]:
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
    rates = (recipe.optimizer.lr,) if "rate" in fixed else RATES
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
            plain.with_run(batch=batch, **budget), optimizer=replace(recipe.optimizer, lr=rate)
        )
        for rate, batch, (name, budget) in product(rates, batches, budgets.items())
    }


def _trial(name: str, recipe: FinetuneRecipe, ended: Tuned) -> Trial:
    assert ended.score is not None  # it came to its end, and there are dev data
    return Trial(
        **how_it_ended(ended),
        name=name,
        rate=recipe.optimizer.lr,
        batch=recipe.run.batch,
        epochs=recipe.run.epochs,
        seed=recipe.run.seed,
    )


def write_trials(folder: Path, trials: Mapping[str, Trial]) -> None:
    """Of several runs those that are finished; by this file one knows that there are several."""
    write_json(folder / TRIALS, [asdict(trial) for trial in trials.values()])


def finished(folder: Path) -> dict[str, Trial]:
    """Of several runs those that came to their end, by name."""
    path, fix = folder / TRIALS, "fine-tune again, with --force (force=True in Python)"
    rows = read_json(path, fix=fix) if path.is_file() else []
    try:
        return {row["name"]: Trial(**row) for row in rows}
    except (TypeError, KeyError):
        raise FolderError(f"{path} does not list the runs that are finished", fix=fix) from None


def best_of(trials: Iterable[Trial]) -> Trial:
    """Of the seeds, where there are some: they have what the search found."""
    some = list(trials)
    last = [trial for trial in some if trial.of_a_seed] or some
    return max(last, key=lambda trial: -inf if isnan(trial.score) else trial.score)
