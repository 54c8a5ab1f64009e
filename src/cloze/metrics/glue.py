"""The tasks of GLUE: their files, columns and metrics.

Wang et al. 2018, table 1. The score of a task is the mean of its metrics, the score of a model is
the mean over tasks.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from cloze.data.input_files import COMPRESSED_ENDINGS

Column: TypeAlias = str | int  # a name in the header; or a 1-based number in files without header


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task; `metrics` are names of `cloze.metrics.scorer`."""

    name: str  # also the name of its folder
    text: Column
    pair: Column | None = None
    label: Column = "label"
    kind: str = "classify"
    metrics: tuple[str, ...] = ("accuracy",)
    is_symmetric: bool = False  # the texts of a pair have no order
    train: str = "train"
    dev: tuple[str, ...] = ("dev",)  # scored separately: MNLI has two

    def score(self, scores: Iterable[Mapping[str, float]]) -> float:
        """The score of the task: the mean of its metrics over its dev files."""
        return fmean(one[metric] for one in scores for metric in self.metrics)


GLUE = {
    task.name: task
    for task in (
        GlueTask(name="CoLA", text=4, label=2, metrics=("matthews_correlation",)),
        GlueTask(name="SST-2", text="sentence"),
        GlueTask(
            name="MRPC",
            text="#1 String",
            pair="#2 String",
            is_symmetric=True,
            label="Quality",
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="STS-B",
            text="sentence1",
            pair="sentence2",
            label="score",
            is_symmetric=True,
            kind="regression",
            metrics=("pearson", "spearman"),
        ),
        GlueTask(
            name="QQP",
            text="question1",
            pair="question2",
            label="is_duplicate",
            is_symmetric=True,
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="MNLI",
            text="sentence1",
            pair="sentence2",
            label="gold_label",
            dev=("dev_matched", "dev_mismatched"),
        ),
        GlueTask(name="QNLI", text="question", pair="sentence"),
        GlueTask(name="RTE", text="sentence1", pair="sentence2"),
        GlueTask(name="WNLI", text="sentence1", pair="sentence2"),
    )
}


@dataclass(frozen=True, kw_only=True)
class GlueFiles:
    """The files of a task that exist."""

    task: GlueTask
    train: Path | None
    dev: tuple[Path, ...]


def find_glue_files(folder: str | os.PathLike[str]) -> dict[str, GlueFiles]:
    """The tasks that have files in a GLUE folder, in the order of the paper's table.

    The case of folder names does not matter; files are .tsv and may be compressed.
    """
    folders = {one.name.lower(): one for one in sorted(Path(folder).iterdir()) if one.is_dir()}
    found = {}
    for name, task in GLUE.items():
        if (task_folder := folders.get(name.lower())) is not None:
            train = _find_file(task_folder, task.train)
            dev = [file for stem in task.dev if (file := _find_file(task_folder, stem)) is not None]
            if train or dev:
                found[name] = GlueFiles(task=task, train=train, dev=tuple(dev))
    return found


def compute_mean_score(scores: Mapping[str, float]) -> float:
    """The score of a model: the mean of the scores of its tasks."""
    return fmean(scores.values())


def _find_file(folder: Path, stem: str) -> Path | None:
    names = (f"{stem}.tsv{suffix}" for suffix in ("", *COMPRESSED_ENDINGS))
    return next((folder / name for name in names if (folder / name).is_file()), None)
