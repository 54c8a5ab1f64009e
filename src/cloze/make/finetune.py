"""`finetune`: a model and labelled data to a model for a task.

The run's folder is the model's folder, and the model in it is the best so far by the dev data.
Beside it lie what it ran with, how it went, and what a resumed run goes on from:

    config.json model.safetensors tokenizer.json …     what the verbs and `transformers` open
    cloze.json                                          what the task is, and how texts are read
    recipe.toml metrics.jsonl data.json report.html state/
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from os import PathLike as OsPath
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model, device_of
from cloze.checkpoint.task import TASKS
from cloze.config import one_of
from cloze.data.files import PathLike, fresh_path
from cloze.errors import InputError
from cloze.make.features import tune_features
from cloze.make.finetune_recipe import (
    BATCHES,
    DEFAULT,
    EPOCHS,
    RATES,
    FinetuneRecipe,
    finetune_recipe,
)
from cloze.make.labelled import Labelled, gather, listed_sources
from cloze.make.run import (
    METRICS,
    RECIPE,
    REPORT,
    STATE,
    UNNAMED,
    Watch,
    recipe_in,
    write_recipe,
)
from cloze.make.tuning import SUMMARY, Tuned, tune

TRIALS = "trials.json"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One of several runs."""

    name: str
    rate: float
    batch: int
    epochs: float | None
    seed: int
    score: float
    scores: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Finetuned(Tuned):
    """How it ended: the run whose model the folder holds, and those it was chosen from."""

    folder: Path
    task: str
    measure: str  # the name of the score that chose
    labels: tuple[str, ...]
    trials: tuple[Trial, ...] = ()

    @property
    def mean(self) -> float | None:
        """Of the scores of all seeds."""
        return fmean(t.score for t in self._seeds) if self._seeds else self.score

    @property
    def deviation(self) -> float | None:
        """Of the scores of all seeds, as of a sample."""
        return stdev(t.score for t in self._seeds) if len(self._seeds) > 1 else None

    @property
    def _seeds(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.name.startswith("seed")]


def finetune(
    task: str,
    model: Model | PathLike,
    train: PathLike | Sequence[Any],
    out: PathLike,
    recipe: FinetuneRecipe | PathLike = DEFAULT,
    *,
    dev: PathLike | Sequence[Any] = (),
    settings: Sequence[str] = (),
    force: bool = False,
    watch: Watch | None = None,
) -> Finetuned:
    """Teach a model a task: classify, tag, answer or choose.

    After every epoch it is judged on the dev data, and the best one is what the folder holds in the
    end. With `run.search` the paper's rates, batches and epochs are tried on dev first; with
    `run.seeds` there are so many runs, and the best one is kept. SIGTERM and Ctrl-C save and end
    it; `resume_finetune` goes on, exactly where the budget is in epochs, steps or tokens.

    Args:
        task: what it is to learn.
        model: that it begins with.
        train: files, folders or globs of labelled data; or examples of `cloze.data.labelled`.
        out: the run's and the model's folder.
        recipe: a `FinetuneRecipe`, the name of one, or its file.
        dev: what it is judged by; left out, a tenth of the training data, chosen by a hash.
        settings: such as "optimiser.rate=3e-5", on top of the recipe.
        force: overwrite what is there.
        watch: who wants to see it.
    """
    one_of("task", task, TASKS)
    made = finetune_recipe(recipe, settings=settings)
    named = str(model) if isinstance(model, str | OsPath) else UNNAMED
    data = replace(made.data, train=_named(train), dev=_named(dev))
    made = replace(made, task=task, model=named, data=data)  # type: ignore[arg-type]
    folder = fresh_path(out, force)
    for name in (RECIPE, METRICS, SUMMARY, REPORT, TRIALS):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / STATE, ignore_errors=True)
    labelled = gather(made, train, dev)
    several = made.run.search or made.run.seeds > 1
    if several and not labelled.dev:
        raise InputError("there is nothing to choose by", fix="give dev data, or hold some out")
    watch = watch or Watch()
    watch.say.text(labelled.described())
    base = _opened(model, made)

    def one(recipe: FinetuneRecipe, place: Path) -> Tuned:
        write_recipe(place, recipe)
        return _tune(base, labelled, place, recipe, watch)

    if not several:
        return _ended(one(made, folder), folder, made, labelled, ())
    return _several(one, folder, made, labelled)


def resume_finetune(
    out: PathLike, *, settings: Sequence[str] = (), watch: Watch | None = None
) -> Finetuned:
    """Go on with the run in a folder, by the recipe that lies there."""
    folder = Path(out)
    made = finetune_recipe(recipe_in(folder), settings=settings)
    if UNNAMED in (made.model, *made.data.train, *made.data.dev):
        raise InputError(
            "this run began with objects in Python, which a folder cannot name",
            fix="fine-tune again, or give the model and the data as files",
        )
    labelled = gather(made, made.data.train, made.data.dev)
    ended = _tune(_opened(made.model, made), labelled, folder, made, watch or Watch())
    return _ended(ended, folder, made, labelled, ())


def _several(
    one: Callable[[FinetuneRecipe, Path], Tuned],
    folder: Path,
    recipe: FinetuneRecipe,
    data: Labelled,
) -> Finetuned:
    """Search first, then the seeds with what was found; the folder gets the best of the last."""
    trials: list[Trial] = []

    def tried(plans: Mapping[str, FinetuneRecipe]) -> tuple[FinetuneRecipe, str, Tuned]:
        best: tuple[FinetuneRecipe, str, Tuned] | None = None
        for name, plan in plans.items():
            ended = one(plan, folder / name)
            trials.append(_trial(name, plan, ended))
            (folder / TRIALS).write_text(json.dumps([asdict(trial) for trial in trials], indent=1))
            shutil.rmtree(folder / name / STATE, ignore_errors=True)
            if best is None or (ended.score or 0.0) > (best[2].score or 0.0):
                best, worse = (plan, name, ended), best
            else:
                worse = plan, name, ended
            if worse is not None:  # its numbers stay, its weights go
                (folder / worse[1] / "model.safetensors").unlink(missing_ok=True)
        assert best is not None
        return best

    chosen = recipe.with_run(seeds=1, search=False)
    found: tuple[FinetuneRecipe, str, Tuned] | None = None
    if recipe.run.search:
        found = tried(_grid(chosen))
        chosen = found[0]
    if recipe.run.seeds > 1:
        numbers = range(recipe.run.seed, recipe.run.seed + recipe.run.seeds)
        found = tried({f"seed-{n}": chosen.with_run(seed=n) for n in numbers})
    assert found is not None
    chosen, name, ended = found
    shutil.copytree(folder / name, folder, dirs_exist_ok=True)
    (folder / name / "model.safetensors").unlink(missing_ok=True)
    return _ended(ended, folder, chosen, data, tuple(trials))


def _grid(recipe: FinetuneRecipe) -> dict[str, FinetuneRecipe]:
    """Devlin et al. 2018, appendix A.3: batch 16 or 32, three rates, three or four epochs."""
    return {
        f"rate-{rate:g}-batch-{batch}-epochs-{epochs}": replace(
            recipe.with_run(
                batch=batch, epochs=float(epochs), steps=None, tokens=None, minutes=None
            ),
            optimiser=replace(recipe.optimiser, rate=rate),
        )
        for rate, batch, epochs in product(RATES, BATCHES, EPOCHS)
    }


def _trial(name: str, recipe: FinetuneRecipe, ended: Tuned) -> Trial:
    assert ended.score is not None
    return Trial(
        name=name,
        rate=recipe.optimiser.rate,
        batch=recipe.run.batch,
        epochs=recipe.run.epochs,
        seed=recipe.run.seed,
        score=ended.score,
        scores=ended.scores,
        seconds=ended.seconds,
    )


def _tune(base: Model, data: Labelled, out: Path, recipe: FinetuneRecipe, watch: Watch) -> Tuned:
    if recipe.transfer.kind == "features":
        return tune_features(base, data, out, recipe, watch)
    return tune(base, data, out, recipe, watch)


def _ended(
    ended: Tuned, folder: Path, recipe: FinetuneRecipe, data: Labelled, trials: tuple[Trial, ...]
) -> Finetuned:
    return Finetuned(
        **vars(ended),
        folder=folder,
        task=recipe.task,
        measure=data.measure,
        labels=data.labels,
        trials=trials,
    )


def _named(source: PathLike | Sequence[Any]) -> tuple[str, ...]:
    listed = listed_sources(source)
    if all(isinstance(one, str | OsPath) for one in listed):
        return tuple(str(one) for one in listed)
    return (UNNAMED,)


def _opened(model: Model | PathLike, recipe: FinetuneRecipe) -> Model:
    if isinstance(model, Model):
        return model
    return load(model, device=device_of(recipe.run.device), quiet=True)
