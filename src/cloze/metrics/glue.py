"""GLUE's tasks: where their files lie, which columns count, and what they are scored by.

Wang et al. 2018, table 1. A task's score is the mean of its metrics, a model's the mean of its
tasks' scores.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from cloze.data.input_files import COMPRESSED_ENDINGS

Column: TypeAlias = str | int  # by the header's name; by number, from 1, where there is none


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task. Metrics go by the names of `measures`."""

    name: str  # and that of its folder
    text: Column
    pair: Column | None = None
    label: Column = "label"
    kind: str = "classify"
    metrics: tuple[str, ...] = ("accuracy",)
    train: str = "train"
    dev: tuple[str, ...] = ("dev",)  # scored one by one, as MNLI's two are

    def score(self, scores: Iterable[Mapping[str, float]]) -> float:
        """The task's one number from the scores of each of its dev files."""
        return fmean(one[metric] for one in scores for metric in self.metrics)


GLUE = {
    task.name: task
    for task in (
        GlueTask(name="CoLA", text=4, label=2, metrics=("matthews",)),
        GlueTask(name="SST-2", text="sentence"),
        GlueTask(
            name="MRPC",
            text="#1 String",
            pair="#2 String",
            label="Quality",
            metrics=("f1", "accuracy"),
        ),
        GlueTask(
            name="STS-B",
            text="sentence1",
            pair="sentence2",
            label="score",
            kind="number",
            metrics=("pearson", "spearman"),
        ),
        GlueTask(
            name="QQP",
            text="question1",
            pair="question2",
            label="is_duplicate",
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
    """The files of a task that are there."""

    task: GlueTask
    train: Path | None
    dev: tuple[Path, ...]


def find_glue_files(folder: str | os.PathLike[str]) -> dict[str, GlueFiles]:
    """Every task that has a file in a folder of GLUE, in the order of the table.

    A task's folder may be spelled in any case; files are .tsv, packed or not.
    """
    folders = {one.name.lower(): one for one in sorted(Path(folder).iterdir()) if one.is_dir()}
    found = {}
    for name, task in GLUE.items():
        if (place := folders.get(name.lower())) is not None:
            train = _file(place, task.train)
            dev = [file for stem in task.dev if (file := _file(place, stem)) is not None]
            if train or dev:
                found[name] = GlueFiles(task=task, train=train, dev=tuple(dev))
    return found


def mean_score(scores: Mapping[str, float]) -> float:
    """A model's one number: the mean of its tasks' scores, whichever they are."""
    return fmean(scores.values())


def _file(folder: Path, stem: str) -> Path | None:
    names = (f"{stem}.tsv{packing}" for packing in ("", *COMPRESSED_ENDINGS))
    return next((folder / name for name in names if (folder / name).is_file()), None)
