"""`glue`: fine-tune a model on every GLUE task in a folder, and tabulate the scores.

The run and the model of a task are in `out/TASK`, together with `glue.json`, which contains the
task's settings and, once it is finished, its row of the table. So an interrupted table continues
where it stopped.
"""

from __future__ import annotations  # `help` shows types by their short names

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from cloze.checkpoint.load import load
from cloze.checkpoint.model import Model
from cloze.config import Settings, in_range, suggest, to_mapping
from cloze.data.labelled.examples import TextExample
from cloze.data.labelled.tables import read_text_examples
from cloze.errors import FolderError, InputError
from cloze.files import PathLike, check_output_path, read_json, write_json
from cloze.make.finetune.encoder import finetune_encoder, resume_finetune
from cloze.make.finetune.trials import is_seed_trial
from cloze.make.recipe.classes import Recipe
from cloze.make.recipe.complete import complete_finetuning
from cloze.make.recipe.complete import recipe as complete
from cloze.make.recipe.finetune import FinetuneRecipe, LossConfig
from cloze.make.recipe.keywords import GlueOptions
from cloze.make.recipe.option_help import check_options, document_options
from cloze.make.recipe.resumed import describe_differences
from cloze.make.run_folder import find_run_recipe
from cloze.make.sources import UNNAMED
from cloze.metrics.glue import GLUE, GlueFiles, GlueTask, compute_mean_score, find_glue_files
from cloze.report.display import open_callbacks
from cloze.tasks.evaluate_labelled import evaluate_labelled
from cloze.train.callbacks import Callback, CallbackList
from cloze.train.result import RunResult
from cloze.train.run_files import DATA_FACTS, RECIPE

FILE = "glue.json"


@dataclass(frozen=True, kw_only=True)
class GlueRow:
    """One task with GLUE's own metrics; with several seeds, metrics and score are means."""

    task: str
    metrics: Mapping[str, float]
    score: float | None  # the mean of the metrics; None if the task could not be trained or scored
    score_std: float | None = None  # sample standard deviation over the seeds
    baseline: Mapping[str, float] = field(default_factory=dict)  # without a model, by its name
    train: int = 0  # number of training examples
    dev: int = 0  # number of dev examples
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GlueTable:
    """The tasks that were found, in GLUE's order."""

    rows: tuple[GlueRow, ...]
    stopped: str | None = None  # the signal that ended it early

    @property
    def score(self) -> float | None:
        """The mean over the tasks that have a score."""
        scores = {row.task: row.score for row in self.rows if row.score is not None}
        return compute_mean_score(scores) if scores else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "score": self.score}


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """How every task is trained."""

    model: Model | PathLike
    recipe: FinetuneRecipe
    limit: int | None
    force: bool

    def settings_of(self, task: GlueTask) -> dict[str, Any]:
        """The settings that must be equal for an existing run of a task to be used."""
        recipe = to_mapping(adapt_recipe(self.recipe, task))
        recipe["run"].pop("device", None)
        return {
            "model": UNNAMED if isinstance(self.model, Model) else str(self.model),
            "recipe": recipe,
            "limit": self.limit,
        }


@document_options("glue")
def glue(
    model: Model | PathLike,
    data: PathLike,
    out: PathLike | None = None,
    recipe: Recipe | PathLike | None = None,
    *,
    tasks: str | Iterable[str] = (),
    settings: Settings = (),
    limit: int | None = None,
    force: bool = False,
    progress: bool = True,
    callbacks: Callback | Iterable[Callback] = (),
    **options: Unpack[GlueOptions],
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
        settings: any settings of the recipe, such as {"optimizer.lr": 3e-5},
            {"optimizer": {"lr": 3e-5}} or ["optimizer.lr=3e-5"].
        limit: use only the first examples of each file, for a quick test.
        force: overwrite what is in `out`.
        progress: show progress bars and metrics on a terminal or in a notebook, else log lines.
        callbacks: called while each task is prepared and trained, and when it ends.
    """
    check_options("glue", options)
    if limit is not None:
        in_range("limit", limit, 1, 1 << 40)
    found = _find_tasks(data, [tasks] if isinstance(tasks, str) else list(tasks))
    models = None if isinstance(model, Model) else _find_models(Path(model))
    if models is not None:
        return GlueTable(rows=tuple(_score_model(one, models, limit) for one in found))
    made = complete_finetuning(recipe, task="classify", options=options, settings=settings)
    assert isinstance(made, FinetuneRecipe)
    plan = _Plan(model=model, recipe=made, limit=limit, force=force)
    rows: list[GlueRow] = []
    with open_callbacks(progress, callbacks) as opened, ExitStack() as stack:
        folder = Path(out or stack.enter_context(TemporaryDirectory(prefix="cloze-glue-")))
        for files in found:
            name = files.task.name
            if files.train is None or not files.dev:
                missing = "training" if files.train is None else "dev"
                rows.append(GlueRow(task=name, metrics={}, score=None, note=f"no {missing} data"))
                continue
            row = _train_task(plan, files, folder / name, opened)
            if isinstance(row, str):
                return GlueTable(rows=tuple(rows), stopped=row)
            rows.append(row)
    return GlueTable(rows=tuple(rows))


def _find_tasks(data: PathLike, tasks: Sequence[str]) -> list[GlueFiles]:
    """The files of the tasks in a folder: of those that are named, or of all."""
    folder = Path(data)
    if not folder.is_dir():
        raise InputError(
            f"the folder {folder} does not exist",
            fix="name the folder that contains the tasks of GLUE",
        )
    found = find_glue_files(folder)
    if not tasks:
        if not found:
            raise InputError(
                f"{folder} contains no task of GLUE",
                fix=f"it needs folders such as {', '.join(GLUE)} with train.tsv and dev.tsv",
            )
        return list(found.values())
    known = {name.lower(): name for name in GLUE}
    for name in tasks:
        if name.lower() not in known:
            raise InputError(f"GLUE has no task {name!r}", fix=suggest(name, GLUE))
        if known[name.lower()] not in found:
            raise InputError(
                f"{folder} contains no data for {known[name.lower()]}",
                fix=f"choose from {', '.join(found)}" if found else "name another folder",
            )
    wanted = {known[name.lower()] for name in tasks}
    return [files for name, files in found.items() if name in wanted]


def _find_models(folder: Path) -> dict[str, Path] | None:
    """Models by the task that their folder is named after; None if the folder itself is a model."""
    if not folder.is_dir() or (folder / "config.json").exists():
        return None
    inside = {one.name.lower(): one for one in folder.iterdir() if (one / "config.json").exists()}
    return {name: inside[name.lower()] for name in GLUE if name.lower() in inside} or None


def _score_model(files: GlueFiles, models: Mapping[str, Path], limit: int | None) -> GlueRow:
    """The row of a model that is already fine-tuned."""
    task = files.task
    if task.name not in models or not files.dev:
        note = "no model" if task.name not in models else "no dev data"
        return GlueRow(task=task.name, metrics={}, score=None, note=note)
    metrics, score, count, seconds, baseline = _evaluate_files(files, models[task.name], limit)
    return GlueRow(
        task=task.name,
        metrics=metrics,
        score=score,
        baseline=baseline,
        dev=count,
        seconds=seconds,
        note=_describe_limit(limit),
    )


def _train_task(
    plan: _Plan, files: GlueFiles, folder: Path, callbacks: CallbackList
) -> GlueRow | str:
    """Train a task and return its row, or the signal that ended the run.

    A task whose folder contains its row is not trained again. A run that was stopped is resumed if
    its recipe names the model and the data.
    """
    task = files.task
    settings = plan.settings_of(task)
    is_started, row = (False, None) if plan.force else _read_row(folder, settings)
    if row is not None:
        return replace(row, note="; ".join(filter(None, ["trained before", row.note])))
    callbacks.on_log(f"{task.name}:")
    write_json(folder / FILE, {"settings": settings, "row": None})
    can_resume = plan.limit is None and not isinstance(plan.model, Model)
    if is_started and can_resume and (folder / RECIPE).is_file():
        ended = resume_finetune(folder, complete(find_run_recipe(folder)), callbacks=callbacks)
    else:
        ended = finetune_encoder(
            plan.model,
            _source(task, [files.train], plan.limit),
            folder,
            adapt_recipe(plan.recipe, task),
            dev=_source(task, files.dev, plan.limit),
            force=True,  # `_read_row` has refused to overwrite another run
            callbacks=callbacks,
        )
    if ended.stopped:
        return ended.stopped
    row = _make_row(files, folder, ended, plan.limit)
    write_json(folder / FILE, {"settings": settings, "row": asdict(row)})
    return row


def _read_row(folder: Path, settings: Mapping[str, Any]) -> tuple[bool, GlueRow | None]:
    """Whether a folder contains a run with these settings, and its row if it is finished.

    A run with other settings is an error.
    """
    path = folder / FILE
    fix = "choose another --out, or overwrite it with --force (force=True in Python)"
    if not path.is_file():
        check_output_path(folder)
        return False, None
    content = read_json(path, fix=fix)
    try:
        row = None if content["row"] is None else GlueRow(**content["row"])
        is_same = content["settings"] == settings
    except (TypeError, KeyError):
        raise FolderError(f"{path} does not contain a row of the table", fix=fix) from None
    if not is_same:
        changed = describe_differences(content["settings"], settings)
        raise InputError(f"{folder} contains a run with other settings: {changed}", fix=fix)
    return True, row


def _make_row(files: GlueFiles, folder: Path, ended: RunResult, limit: int | None) -> GlueRow:
    """The row of a finished run."""
    task = files.task
    counts = read_json(folder / DATA_FACTS)
    by_seed = [one.scores for one in ended.trials or () if is_seed_trial(one)] or [ended.scores]
    scores = [task.score([one]) for one in by_seed]
    metrics = {name: fmean(one[name] for one in by_seed) for name in task.metrics}
    score = fmean(scores)
    if len(files.dev) > 1 and len(by_seed) == 1:
        metrics, score, *_ = _evaluate_files(files, folder, limit)
    return GlueRow(
        task=task.name,
        metrics=metrics,
        score=score,
        score_std=stdev(scores) if len(scores) > 1 else None,
        baseline={name: by_seed[0][name] for name in by_seed[0] if name.endswith("_baseline")},
        train=counts["training"],
        dev=counts["dev"],
        seconds=sum(one.seconds for one in ended.trials or ()) or ended.seconds,
        note=_describe_limit(limit),
    )


def _evaluate_files(
    files: GlueFiles, folder: Path, limit: int | None
) -> tuple[dict[str, float], float, int, float, dict[str, float]]:
    """Metrics and score of a model on the task's dev files, examples, seconds, and baseline."""
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
    count = sum(one.count for one in each.values())
    seconds = sum(one.seconds for one in each.values())
    return metrics, score, count, seconds, next(iter(each.values())).baseline


def adapt_recipe(recipe: FinetuneRecipe, task: GlueTask) -> FinetuneRecipe:
    """The recipe with the columns and the metrics of a task.

    Only pairs that have no order are read in both orders (`--transformation similarity`).
    """
    chosen = recipe.data.transformation
    table = replace(
        recipe.data,
        transformation=None if chosen == "similarity" and not task.is_symmetric else chosen,
        text_column=str(task.text),
        pair_column=None if task.pair is None else str(task.pair),
        label_column=(str(task.label),),
        is_regression=task.kind == "regression",
    )
    metrics = recipe.run.selection_metrics or task.metrics  # they select the best model
    loss = LossConfig() if table.is_regression else recipe.loss  # its settings are for classes
    return replace(recipe, data=table, loss=loss).with_run(selection_metrics=metrics)


def _source(
    task: GlueTask, files: Sequence[Path | None], limit: int | None, *, read: bool = False
) -> list[Any]:
    """The files of a task, or their first examples."""
    listed = [file for file in files if file is not None]
    if limit is None and not read:
        return listed
    number = task.kind == "regression"

    def examples(file: Path) -> Iterator[TextExample]:
        return read_text_examples(
            file,
            text_column=task.text,
            pair_column=task.pair,
            label_column=task.label,
            is_regression=number,
        )

    return [example for file in listed for example in islice(examples(file), limit)]


def _describe_limit(limit: int | None) -> str:
    return "" if limit is None else f"only the first {limit:,} examples of each file"
