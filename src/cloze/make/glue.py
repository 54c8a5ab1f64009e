"""`glue`: a model fine-tuned on every task of GLUE that a folder holds, and the table of scores.

Each task's run and model lie in `out/TASK`, and beside them `glue.json`: what was asked for, and
the row of the table once it is known. So a table that was begun goes on where it ended.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import Settings, in_range, suggest, to_mapping
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tables import read_text_examples
from cloze.errors import FolderError, InputError
from cloze.files import PathLike, check_output_path, read_json, write_json
from cloze.make.finetune.encoder import finetune_encoder, resume_finetune
from cloze.make.finetune.trials import is_seed_trial
from cloze.make.recipe.complete import Recipe, complete_finetuning
from cloze.make.recipe.complete import recipe as complete
from cloze.make.recipe.finetune import FinetuneRecipe, LossConfig
from cloze.make.run_folder import find_run_recipe
from cloze.make.sources import UNNAMED
from cloze.metrics.glue import GLUE, GlueFiles, GlueTask, compute_mean_score, find_glue_files
from cloze.tasks.evaluate_labelled import evaluate_labelled
from cloze.train.fit import Callbacks, RunResult
from cloze.train.run_files import DATA_FACTS, RECIPE

FILE = "glue.json"


@dataclass(frozen=True, kw_only=True)
class GlueRow:
    """One task. The metrics are GLUE's own; of several seeds they and the score are the means."""

    task: str
    metrics: Mapping[str, float]
    score: float | None  # the mean of its metrics; None where there was nothing to learn from
    deviation: float | None = None  # of the score over the seeds
    train: int = 0  # examples
    dev: int = 0
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GlueTable:
    """The tasks that were found, in GLUE's order."""

    rows: tuple[GlueRow, ...]
    stopped: str | None = None  # the signal, where one ended it early

    @property
    def score(self) -> float | None:
        """The mean over the tasks that have a score."""
        known = {row.task: row.score for row in self.rows if row.score is not None}
        return compute_mean_score(known) if known else None


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is asked of each task."""

    model: Model | PathLike
    recipe: FinetuneRecipe
    limit: int | None
    force: bool

    def asked(self, task: GlueTask) -> dict[str, Any]:
        """What must be the same for a task to be done already."""
        recipe = to_mapping(_for(task, self.recipe))
        recipe["run"].pop("device", None)
        return {
            "model": UNNAMED if isinstance(self.model, Model) else str(self.model),
            "recipe": recipe,
            "limit": self.limit,
        }


def glue(
    model: Model | PathLike,
    data: PathLike,
    out: PathLike | None = None,
    recipe: Recipe | PathLike | None = None,
    *,
    tasks: Sequence[str] = (),
    settings: Settings = (),
    limit: int | None = None,
    force: bool = False,
    callbacks: Callable[[str], Callbacks] | None = None,
    **options: Any,  # noqa: ANN401
) -> GlueTable:
    """Fine-tune a model on each task of GLUE in a folder, and score it on the task's dev data.

    A task that `out` contains already, with the same settings, is not trained again; one that was
    stopped is resumed. MNLI is trained with both of its dev files as one, then scored on each.

    Args:
        model: the model to fine-tune; or a folder of fine-tuned models, named like the tasks, that
            are only scored.
        data: the folder that contains the folders of the tasks: CoLA, SST-2, MRPC, …
        out: the folder to keep the models in (default: they are deleted).
        recipe: a recipe of fine-tuning, the name of one, or its file; each task sets its files and
            columns.
        tasks: only these tasks (default: all that are found).
        settings: such as "optimizer.lr=3e-5", or {"optimizer.lr": 3e-5}, on top of the recipe.
        limit: only the first examples of each file, for a quick look.
        force: overwrite what is in `out`.
        callbacks: for logging and progress, by the name of the task.
        options: the flags of `cloze glue` as keywords: `lr=3e-5`, `epochs=2`.
    """
    if limit is not None:
        in_range("limit", limit, 1, 1 << 40)
    found = _found(data, tasks)
    models = None if isinstance(model, Model) else _models(Path(model))
    if models is not None:
        return GlueTable(rows=tuple(_scored(one, models, limit) for one in found))
    made = complete_finetuning(recipe, task="classify", options=options, settings=settings)
    assert isinstance(made, FinetuneRecipe)
    plan = _Plan(model=model, recipe=made, limit=limit, force=force)
    rows: list[GlueRow] = []
    with ExitStack() as stack:
        place = Path(out or stack.enter_context(TemporaryDirectory(prefix="cloze-glue-")))
        for files in found:
            name = files.task.name
            if files.train is None or not files.dev:
                lacking = "training" if files.train is None else "dev"
                rows.append(GlueRow(task=name, metrics={}, score=None, note=f"no {lacking} data"))
                continue
            seen = callbacks(name) if callbacks else Callbacks()
            row = _row(plan, files, place / name, seen)
            if isinstance(row, str):
                return GlueTable(rows=tuple(rows), stopped=row)
            rows.append(row)
    return GlueTable(rows=tuple(rows))


def _found(data: PathLike, tasks: Sequence[str]) -> list[GlueFiles]:
    folder = Path(data)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: there is no such folder", fix="name the folder that GLUE's tasks lie in"
        )
    found = find_glue_files(folder)
    if not tasks:
        if not found:
            raise InputError(
                f"{folder}: there is no task of GLUE in it",
                fix=f"it should have folders such as {', '.join(GLUE)} with train.tsv and dev.tsv",
            )
        return list(found.values())
    known = {name.lower(): name for name in GLUE}
    for asked in tasks:
        if asked.lower() not in known:
            raise InputError(f"GLUE has no task {asked!r}", fix=suggest(asked, GLUE))
        if known[asked.lower()] not in found:
            raise InputError(
                f"{folder}: there are no data for {known[asked.lower()]}",
                fix=f"ask for {', '.join(found)}" if found else "name another folder",
            )
    wanted = {known[asked.lower()] for asked in tasks}
    return [files for name, files in found.items() if name in wanted]


def _models(folder: Path) -> dict[str, Path] | None:
    """Models by the task their folder is named after; None where the folder is itself a model."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return None
    inside = {one.name.lower(): one for one in folder.iterdir() if (one / "config.json").exists()}
    return {name: inside[name.lower()] for name in GLUE if name.lower() in inside} or None


def _scored(files: GlueFiles, models: Mapping[str, Path], limit: int | None) -> GlueRow:
    """The row of a model that was fine-tuned already."""
    task = files.task
    if task.name not in models or not files.dev:
        note = "no model" if task.name not in models else "no dev data"
        return GlueRow(task=task.name, metrics={}, score=None, note=note)
    metrics, score, count, seconds = _judged(files, models[task.name], limit)
    return GlueRow(
        task=task.name,
        metrics=metrics,
        score=score,
        dev=count,
        seconds=seconds,
        note=_limited(limit),
    )


def _row(plan: _Plan, files: GlueFiles, folder: Path, callbacks: Callbacks) -> GlueRow | str:
    """The row of a task, by a run if need be; the signal that ended it, if one did."""
    task = files.task
    asked = plan.asked(task)
    begun, row = (False, None) if plan.force else _begun(folder, asked)
    if row is not None:
        return replace(row, note="; ".join(filter(None, ["from before", row.note])))
    callbacks.log(f"{task.name}:")
    write_json(folder / FILE, {"asked": asked, "row": None})
    named = plan.limit is None and not isinstance(plan.model, Model)
    if begun and named and (folder / RECIPE).is_file():
        ended = resume_finetune(folder, complete(find_run_recipe(folder)), callbacks=callbacks)
    else:
        ended = finetune_encoder(
            plan.model,
            _source(task, [files.train], plan.limit),
            folder,
            _for(task, plan.recipe),
            dev=_source(task, files.dev, plan.limit),
            force=True,  # what may not be overwritten was found above
            callbacks=callbacks,
        )
    if ended.stopped:
        return ended.stopped
    row = _learned(files, folder, ended, plan.limit)
    write_json(folder / FILE, {"asked": asked, "row": asdict(row)})
    return row


def _begun(folder: Path, asked: Mapping[str, Any]) -> tuple[bool, GlueRow | None]:
    """Whether a task was asked for before, and its row if known; an error if in another way."""
    path = folder / FILE
    fix = "choose another place, or overwrite it with --force (force=True in Python)"
    if not path.is_file():
        check_output_path(folder)
        return False, None
    known = read_json(path, fix=fix)
    try:
        before, row = known["asked"], known["row"]
        made = None if row is None else GlueRow(**row)
    except (TypeError, KeyError):
        raise FolderError(f"{path} does not hold a row of the table", fix=fix) from None
    if before != asked:
        raise InputError(f"{folder} holds a run with other settings", fix=fix)
    return True, made


def _learned(files: GlueFiles, folder: Path, ended: RunResult, limit: int | None) -> GlueRow:
    task = files.task
    counts = read_json(folder / DATA_FACTS)
    seeds = [t.scores for t in ended.trials or () if is_seed_trial(t)] or [ended.scores]
    scores = [task.score([one]) for one in seeds]
    metrics = {name: fmean(one[name] for one in seeds) for name in task.metrics}
    score = fmean(scores)
    if len(files.dev) > 1 and len(seeds) == 1:
        metrics, score, _, _ = _judged(files, folder, limit)
    return GlueRow(
        task=task.name,
        metrics=metrics,
        score=score,
        deviation=stdev(scores) if len(scores) > 1 else None,
        train=counts["training"],
        dev=counts["dev"],
        seconds=sum(t.seconds for t in ended.trials or ()) or ended.seconds,
        note=_limited(limit),
    )


def _judged(
    files: GlueFiles, folder: Path, limit: int | None
) -> tuple[dict[str, float], float, int, float]:
    """Metrics, score, examples and seconds of a model on each of the task's dev files."""
    task, model = files.task, load(folder, quiet=True)
    each = {
        file.name.split(".")[0]: evaluate_labelled(model, _source(task, [file], limit, read=True))
        for file in files.dev
    }
    metrics = {
        name if len(each) == 1 else f"{name}, {stem}": one.scores[name]
        for stem, one in each.items()
        for name in task.metrics
    }
    score = task.score([one.scores for one in each.values()])
    count, seconds = (sum(getattr(e, n) for e in each.values()) for n in ("count", "seconds"))
    return metrics, score, count, seconds


def _for(task: GlueTask, recipe: FinetuneRecipe) -> FinetuneRecipe:
    """The recipe with the columns of a task."""
    table = replace(
        recipe.data,
        text_column=str(task.text),
        pair_column=None if task.pair is None else str(task.pair),
        label_column=str(task.label),
        is_regression=task.kind == "number",
    )
    metrics = recipe.run.selection_metrics or task.metrics  # they select the best epoch too
    loss = LossConfig() if table.is_regression else recipe.loss  # its settings are about classes
    return replace(recipe, data=table, loss=loss).with_run(selection_metrics=metrics)


def _source(
    task: GlueTask, files: Sequence[Path | None], limit: int | None, *, read: bool = False
) -> list[Any]:
    """Files, or their first examples."""
    listed = [file for file in files if file is not None]
    if limit is None and not read:
        return listed
    number = task.kind == "number"

    def examples(file: Path) -> Iterator[TextExample]:
        return read_text_examples(
            file, text=task.text, pair=task.pair, label=task.label, number=number
        )

    return [example for file in listed for example in islice(examples(file), limit)]


def _limited(limit: int | None) -> str:
    return "" if limit is None else f"only {limit:,} examples of a file"
