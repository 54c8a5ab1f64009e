"""The result of a training run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from cloze.metrics.baselines import describe_failure
from cloze.results import Result


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult(Result):
    """How a training run ended. A field that is None does not apply to this kind of run."""

    folder: Path
    score: float | None = None  # the best selection score
    scores: Mapping[str, float] = field(default_factory=dict)  # all scores of the kept model
    best_step: int = 0  # the step of the kept model
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stopped: str | None = None  # the signal that ended the run early
    task: str | None = None
    metric: str | None = None  # the name of the selection score
    labels: tuple[str, ...] | None = None
    truncated: int | None = None  # training sequences that were too long
    left_out: int | None = None  # training pairs that were too long or empty on one side
    name: str | None = None  # of a trial
    settings: Mapping[str, float | None] = field(default_factory=dict)  # of a trial
    trials: tuple["RunResult", ...] | None = None  # the finished ones of several runs
    num_trials: int | None = None  # how many were planned
    seed_scores: tuple[float, ...] = ()  # of the trials that differ by their seed alone

    @property
    def mean_score(self) -> float | None:
        """The mean over the seeds; with a single run its score."""
        if self.seed_scores:
            return fmean(self.seed_scores)
        return None if self.stopped else self.score

    @property
    def score_std(self) -> float | None:
        """The sample standard deviation over the seeds."""
        return stdev(self.seed_scores) if len(self.seed_scores) > 1 else None

    @property
    def note(self) -> str | None:
        """That the score is not better than its baseline, if it is not."""
        return describe_failure(self.scores)

    def to_records(self) -> list[dict[str, Any]]:
        """One row with the settings and the scores; of several runs a row for each."""
        if self.trials:
            return [row for trial in self.trials for row in trial.to_records()]
        row = {
            "folder": str(self.folder),
            "name": self.name,
            "task": self.task,
            **self.settings,
            **self.scores,
            "best_step": self.best_step,
            "steps": self.steps,
            "seconds": self.seconds,
            "stopped": self.stopped,
        }
        return [{name: value for name, value in row.items() if value is not None}]

    def _repr_html_(self) -> str:
        from cloze.metrics.names import metric_label
        from cloze.plot.notebook import render_heading, render_result, render_table

        scores = ((metric_label(name), f"{value:.4f}") for name, value in self.scores.items())
        facts = {"task": self.task, "steps": self.steps, "seconds": f"{self.seconds:,.1f}"}
        facts |= {"stopped by": self.stopped, "runs": len(self.trials or ())}
        rows = [*scores, *((name, f"{value}") for name, value in facts.items() if value)]
        table = render_table(("", "value"), rows)
        return render_result(render_heading(str(self.folder)), table, note=self.note or "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON: without the fields that do not apply."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {k: v for k, v in values.items() if v is not None or k in ("score", "stopped")}
        found["folder"] = str(self.folder)
        if self.note is not None:
            found["note"] = self.note
        del found["seed_scores"]
        if not self.settings:
            del found["settings"]
        if self.trials is not None:
            found["trials"] = [trial.to_dict() for trial in self.trials]
            found |= {"mean_score": self.mean_score, "score_std": self.score_std}
        return found
