"""The result of `lineage`: one table and one page of systems that were trained on the same text."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cloze.metrics.bootstrap import Interval
from cloze.metrics.names import METRICS, metric_label
from cloze.plot.format import format_percent
from cloze.plot.interval_chart import IntervalChart, IntervalRow
from cloze.plot.page import Cell, Grid, Page, Paragraph, Section, Table
from cloze.results import Result


@dataclass(frozen=True, kw_only=True)
class SystemRow:
    """One system: what it was trained with, and its scores."""

    system: str
    idea: str  # what is new in it
    parameters: int
    tokens: int  # read in training; 0 if that is not counted
    seconds: float  # of training
    bits_per_byte: float | None = None  # of held-out text; None if it is no language model
    unknown: float | None = None  # fraction of its tokens that are not in the vocabulary
    # by task, then by the way of transfer: features, finetune, or counts (n-grams)
    scores: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """The labelled data of a task, split into three parts."""

    name: str
    task: str
    metric: str
    train: int
    dev: int
    test: int
    baseline: Mapping[str, float] = field(default_factory=dict)  # without a model, by its name


@dataclass(frozen=True, kw_only=True, repr=False)
class Lineage(Result):
    """Systems in the order of their publication, and the tasks they were evaluated on."""

    rows: tuple[SystemRow, ...]
    tasks: tuple[TaskData, ...]
    folder: str
    minutes: float
    stopped: str | None = None  # the signal that ended it early

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table."""
        scores = (f"{task}: {way}" for task, way in self._score_columns())
        return ("system", "parameters", "tokens", "time (s)", "bits per byte", "unknown", *scores)

    def _score_columns(self) -> list[tuple[str, str]]:
        found = {
            (task.name, way): None
            for task in self.tasks
            for row in self.rows
            for way in row.scores.get(task.name, {})
        }
        return list(found)

    def table_rows(self) -> Iterator[tuple[Cell, ...]]:
        """The rows of the table; a cell is None where a system cannot do the task."""
        for row in self.rows:
            scores = (row.scores.get(task, {}).get(way) for task, way in self._score_columns())
            yield (
                row.system,
                row.parameters,
                row.tokens or None,
                round(row.seconds, 1),
                None if row.bits_per_byte is None else round(row.bits_per_byte, 3),
                None if row.unknown is None else format_percent(row.unknown),
                *(None if score is None else str(score) for score in scores),
            )

    @property
    def note(self) -> str:
        """How to read the table."""
        parts = []
        for task in self.tasks:
            without = "; ".join(
                METRICS[name].describe(task.baseline[name]) for name in task.baseline
            )
            parts.append(
                f"{task.name}: {metric_label(task.metric)} on {task.test:,} test examples "
                f"({task.train:,} for training, {task.dev:,} to select the best model)"
                + (f"; without a model: {without}" if without else "")
            )
        return (
            f"Each neural model was pre-trained for at most {self.minutes:g} minutes on the same "
            "text. features: the model is frozen, and a small classifier is trained on its "
            "vectors; finetune: all weights are trained; counts: one n-gram model per label. In "
            "brackets: 95 % bootstrap confidence intervals. " + ". ".join(parts) + "."
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "systems": [asdict(row) for row in self.rows],
            "tasks": [asdict(task) for task in self.tasks],
            "folder": self.folder,
            "minutes": self.minutes,
            "stopped": self.stopped,
        }

    def to_records(self) -> list[dict[str, Any]]:
        """A row per system, task and way of transfer."""
        return [
            {
                "system": row.system,
                "parameters": row.parameters,
                "bits_per_byte": row.bits_per_byte,
                "task": task,
                "transfer": way,
                "score": score.value,
                "low": score.low,
                "high": score.high,
            }
            for row in self.rows
            for task, ways in row.scores.items()
            for way, score in ways.items()
        ]

    def page(self, title: str = "Lineage") -> Page:
        """The table, what is new in each system, and a chart for each task."""
        table = Table(
            columns=list(self.columns),
            rows=[
                [str(cell).replace(" [", "\n[") if isinstance(cell, str) else cell for cell in row]
                for row in self.table_rows()
            ],
        )
        ideas = Table(
            columns=["system", "idea"], rows=[[row.system, row.idea] for row in self.rows]
        )
        return Page(
            title=title,
            note=self.note,
            sections=[
                Section(title="All systems", parts=[table]),
                Section(title="Scores", parts=[Grid(parts=self._charts())]),
                Section(title="What each adds", parts=[ideas, Paragraph(text=_READING)]),
            ],
        )

    def _charts(self) -> list[IntervalChart]:
        texts = [row for row in self.rows if row.bits_per_byte is not None]
        charts = [
            IntervalChart(
                title="Bits per byte of held-out text",
                detail="lower is better",
                rows=[IntervalRow(name=r.system, value=r.bits_per_byte or 0.0) for r in texts],
            )
        ]
        for task in self.tasks:
            rows = [
                IntervalRow(
                    name=f"{row.system}, {way}", value=score.value, low=score.low, high=score.high
                )
                for row in self.rows
                for way, score in row.scores.get(task.name, {}).items()
            ]
            percent = task.metric in METRICS and METRICS[task.metric].format is format_percent
            title = f"{task.name}: {metric_label(task.metric)}"
            charts.append(IntervalChart(title=title, rows=rows, percent=percent))
        return [chart for chart in charts if chart.rows]

    def save(self, path: str | os.PathLike[str], title: str = "Lineage") -> Path:
        """The page as one file."""
        return self.page(title).save(path)

    def _repr_html_(self) -> str:
        from cloze.plot.notebook import render_report

        return render_report(self.columns, self.table_rows(), self.page(), note=self.note)


_READING = (
    "Words that a model of words does not know count as one unknown word, which makes its bits per "
    "byte too low: compare them with those of models of subwords only where few are unknown."
)
