"""Several runs of one fine-tuning: a hyperparameter search, then the seeds; the best is kept.

Each trial has a sub-folder of the run's folder, and `trials.json` lists the finished ones.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from math import inf, isnan
from pathlib import Path
from typing import Any

from cloze.checkpoint.atomic import atomic_files, lock_folder, translate_write_errors
from cloze.errors import ConfigError, FolderError
from cloze.files import LOCK_FILE, read_json, read_text, write_json, write_text
from cloze.make.recipe.finetune import (
    SEARCH_BATCH_SIZES,
    SEARCH_EPOCHS,
    SEARCH_LRS,
    FinetuneRecipe,
)
from cloze.make.recipe.run import UNITS
from cloze.make.run_folder import clear_model, write_recipe
from cloze.train.result import RunResult
from cloze.train.run_files import RECIPE, STATE, TRIALS

SEED = "seed-"  # followed by the seed: the name of a trial
Train = Callable[[FinetuneRecipe, Path], RunResult]


def run_trials(
    train: Train, folder: Path, recipe: FinetuneRecipe
) -> tuple[RunResult, dict[str, RunResult]]:
    """Search first, then the seeds with the best settings; the folder gets the best model.

    Finished trials are not run again. A signal ends all of them: the folder then contains the best
    finished model, and still the recipe of the whole run, so that it can be resumed.
    """
    trials, grid = read_trials(folder), _search_grid(recipe)
    chosen = recipe.with_run(seeds=1, search=False, fixed=())
    interrupted = _run_missing(train, folder, grid, trials)
    if interrupted is None:
        if grid:
            chosen = grid[str(best_trial(trials[name] for name in grid).name)]
        seeds = {name: chosen.with_run(seed=n) for name, n in _seed_trials(recipe).items()}
        interrupted = _run_missing(train, folder, seeds, trials)
    kept = interrupted
    if trials:
        stopped = interrupted.stopped if interrupted else None
        kept = replace(best_trial(trials.values()), stopped=stopped)
    assert kept is not None
    name = str(kept.name)
    others = shutil.ignore_patterns(RECIPE, STATE, LOCK_FILE)
    # renamed into the folder, not overwritten: a model that was opened from there stays intact
    with translate_write_errors(folder), atomic_files(folder) as work:
        shutil.copytree(folder / name, work, dirs_exist_ok=True, ignore=others)
    if interrupted is None:
        for trial in trials:
            clear_model(folder / trial)
        # last: it marks the run as finished
        write_text(folder / RECIPE, read_text(folder / name / RECIPE))
    return kept, trials


def _run_missing(
    train: Train,
    folder: Path,
    plans: Mapping[str, FinetuneRecipe],
    trials: dict[str, RunResult],
) -> RunResult | None:
    """Run the plans that are not among `trials`, and add them; return an interrupted one."""
    for name in [name for name in plans if name not in trials]:
        with lock_folder(folder / name):
            write_recipe(folder / name, plans[name])
            result = _name_trial(name, plans[name], train(plans[name], folder / name))
            if result.stopped:
                return result
            trials[name] = result
            write_trials(folder, trials)
            shutil.rmtree(folder / name / STATE, ignore_errors=True)
        for other in trials.keys() - {best_trial(trials.values()).name}:
            clear_model(folder / other)  # metrics and report stay
    return None


def plan_trials(recipe: FinetuneRecipe) -> list[str]:
    """The names of all trials; none for a single run."""
    return [*_search_grid(recipe), *_seed_trials(recipe)]


def _seed_trials(recipe: FinetuneRecipe) -> dict[str, int]:
    first, count = recipe.run.seed, recipe.run.seeds
    return {f"{SEED}{n}": n for n in range(first, first + count)} if count > 1 else {}


def _search_grid(recipe: FinetuneRecipe) -> dict[str, FinetuneRecipe]:
    """Devlin et al. 2018, appendix A.3: batch 16 or 32, three rates, three or four epochs.

    Settings that were given explicitly (`run.fixed`) are not searched.
    """
    if not recipe.run.search:
        return {}
    fixed, plain = recipe.run.fixed, recipe.with_run(seeds=1, search=False, fixed=())
    lrs = (recipe.optimizer.lr,) if "lr" in fixed else SEARCH_LRS
    sizes = (recipe.run.batch_size,) if "batch_size" in fixed else SEARCH_BATCH_SIZES
    budgets: dict[str, dict[str, Any]] = {
        f"-epochs-{n}": dict.fromkeys(UNITS) | {"epochs": float(n)} for n in SEARCH_EPOCHS
    }
    if "epochs" in fixed:
        budgets = {"": {}}
    if len(lrs) * len(sizes) * len(budgets) == 1:
        raise ConfigError(
            "learning rate, batch size and epochs are all given: there is nothing to search",
            fix="leave one of them out, or leave --search out (run.search)",
        )
    return {
        f"lr-{lr:g}-batch-{size}{name}": replace(
            plain.with_run(batch_size=size, **budget), optimizer=replace(recipe.optimizer, lr=lr)
        )
        for lr, size, (name, budget) in product(lrs, sizes, budgets.items())
    }


def _name_trial(name: str, recipe: FinetuneRecipe, result: RunResult) -> RunResult:
    settings = {
        "lr": recipe.optimizer.lr,
        "batch_size": recipe.run.batch_size,
        "epochs": recipe.run.epochs,
        "seed": recipe.run.seed,
    }
    return replace(result, name=name, settings=settings)


def write_trials(folder: Path, trials: Mapping[str, RunResult]) -> None:
    """Write the finished trials; the file marks the folder as one of several runs."""
    write_json(folder / TRIALS, [trial.to_dict() for trial in trials.values()])


def read_trials(folder: Path) -> dict[str, RunResult]:
    """The finished trials by name."""
    path, fix = folder / TRIALS, "fine-tune again, with --force (force=True in Python)"
    rows = read_json(path, fix=fix) if path.is_file() else []
    try:
        return {
            row["name"]: RunResult(
                **{key: row[key] for key in row if key != "note"}
                | {"folder": folder / row["name"], "score": row["score"]}
            )
            for row in rows
        }
    except (TypeError, KeyError):
        raise FolderError(f"{path} is not a list of finished trials", fix=fix) from None


def best_trial(trials: Iterable[RunResult]) -> RunResult:
    """The trial with the highest score; among the seeds if there are any."""
    found = list(trials)
    last = [trial for trial in found if is_seed_trial(trial)] or found

    def score(trial: RunResult) -> float:
        return -inf if trial.score is None or isnan(trial.score) else trial.score

    return max(last, key=score)


def is_seed_trial(trial: RunResult) -> bool:
    """Whether the trial is one of several seeds; otherwise the search tried it."""
    return (trial.name or "").startswith(SEED)
