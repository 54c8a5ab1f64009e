"""Results of `evaluate`: scores, charts and worst errors, as a page and as JSON."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cloze.errors import InputError
from cloze.metrics.baselines import describe_failure
from cloze.metrics.bootstrap import Metric
from cloze.metrics.charts import format_scores, plot_calibration, plot_confusion_counts
from cloze.metrics.labels import (
    Calibration,
    Counts,
    LabelScores,
    compute_calibration,
    confusion_matrix,
    score_labels,
    unique_labels,
)
from cloze.metrics.multi_label import make_label_matrix, score_label_matrix
from cloze.metrics.names import metric_label
from cloze.metrics.scorer import PLAIN
from cloze.metrics.spans import score_spans
from cloze.plot.format import format_percent
from cloze.plot.line_chart import LineChart
from cloze.plot.notebook import render_report
from cloze.plot.page import Cell, Fact, Facts, Grid, Page, PagePart, Section, Table
from cloze.results import Result
from cloze.tasks.example_cards import build_example_parts, describe_example
from cloze.tasks.scored_predictions import (
    SEVERITIES,
    PredictionError,
    ScoredPredictions,
    find_errors,
    label_pairs,
    prediction_confidences,
)

MAX_MATRIX_LABELS = 40
PAGE_ERRORS = 50  # default number of errors on a page
JSON_ERRORS = 5  # default number of errors in JSON and on a terminal
MAX_TEXT = 300  # characters of a text on a page
_RATES = ("precision", "recall", "f1")


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How often each label (row) was predicted as each label (column)."""

    labels: tuple[str, ...]
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class SwapResult:
    """Predictions for pairs with the two texts swapped."""

    agreement: float | None  # fraction with the same label as before; None for numbers
    difference: float  # mean absolute change of the label's probability, or of the number
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Result):
    """Scores of a model on labelled examples."""

    result: ScoredPredictions
    labels: tuple[str, ...]
    model: str | None = None
    skipped: tuple[InputError, ...] = ()  # rows that could not be read
    seconds: float = 0.0
    swapped: SwapResult | None = None
    worst: int | None = None  # number of errors in JSON (default 5) and on the page (default 50)

    def __repr__(self) -> str:
        scores = {name: round(value, 4) for name, value in self.scores.items()}
        return f"Evaluation(kind={self.kind!r}, count={self.count}, scores={scores})"

    @property
    def kind(self) -> str:
        """One of classify, multi_label, regression, similarity, tag, answer and choose."""
        return self.result.kind

    @property
    def scheme(self) -> str | None:
        """The tag scheme."""
        return self.result.scheme

    @property
    def chinese(self) -> bool:
        """Whether answers are scored by CMRC's rules."""
        return self.result.chinese

    @property
    def scores(self) -> dict[str, float]:
        """By name, the main score first."""
        return self.result.scores

    @property
    def score(self) -> float:
        return self.result.score

    @property
    def baseline(self) -> dict[str, float]:
        """The score of a prediction that ignores the text, by its name; empty if there is none."""
        return self.result.baseline

    @property
    def note(self) -> str | None:
        """That the score is not better than the baseline, if it is not."""
        return describe_failure({**self.scores, **self.baseline})

    @property
    def metric(self) -> str:
        """The name of the main score."""
        return self.result.scorer.main

    @property
    def bootstrap_metrics(self) -> dict[str, tuple[Metric, int]]:
        """By name: the metric of a resample, and the number of examples."""
        return {name: (self.result.scorer.metric(name), self.count) for name in self.scores}

    @property
    def examples(self) -> Sequence[Any]:
        return self.result.examples

    @property
    def predictions(self) -> Sequence[Any]:
        """The prediction of each example, in their order."""
        return self.result.predictions

    @property
    def count(self) -> int:
        return len(self.examples)

    @property
    def truncated_chars(self) -> list[int]:
        """The number of characters of each example that were not read."""
        return [one.truncated_chars for one in self.predictions]

    @property
    def num_truncated(self) -> int:
        """Number of examples that were truncated."""
        return sum(map(bool, self.truncated_chars))

    @cached_property
    def errors(self) -> list[PredictionError]:
        """All errors, the worst first."""
        return find_errors(self.result)

    def worst_errors(self, count: int = 10) -> list[PredictionError]:
        """The worst errors: see `find_errors`."""
        return self.errors[:count]

    @property
    def severity(self) -> str:
        """The quantity that errors are ranked by."""
        return SEVERITIES["tag, plain" if self.scheme == PLAIN else self.kind]

    @cached_property
    def confusion(self) -> Confusion | None:
        """The confusion matrix of labels or of word tags; None for other tasks."""
        sides = label_pairs(self.result)
        if sides is None or not sides[0]:
            return None
        known = self.labels if self.kind == "classify" else [*map(str, unique_labels(*sides))]
        return Confusion(labels=tuple(known), counts=confusion_matrix(*sides, known))

    @cached_property
    def label_scores(self) -> Mapping[str, LabelScores]:
        """Precision, recall and F1 of each label; for tag schemes with B-, of spans."""
        if self.kind == "tag" and self.scheme != PLAIN:
            return score_spans(self.result.gold, self.result.predicted, self.scheme).by_label
        if self.kind == "multi_label":
            sets = [
                make_label_matrix(rows, self.labels)
                for rows in (self.result.gold, self.result.predicted)
            ]
            return dict(zip(self.labels, score_label_matrix(*sets), strict=True))
        sides = label_pairs(self.result)
        if sides is None or not sides[0]:
            return {}
        return {str(label): one for label, one in score_labels(*sides).items()}

    @cached_property
    def calibration(self) -> Calibration | None:
        """Confidence and accuracy by bin; None for regression."""
        found = prediction_confidences(self.result)
        return None if found is None or not found[0] else compute_calibration(*found)

    @property
    def listed_errors(self) -> list[PredictionError]:
        """The worst errors that are listed in JSON."""
        return self.worst_errors(JSON_ERRORS if self.worst is None else self.worst)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object: everything but the predictions."""
        matrix, curve, thresholds = self.confusion, self.calibration, self.result.thresholds
        return {
            "model": self.model,
            "task": self.kind,
            "metric": self.metric,
            "score": self.score,
            "scores": self.scores,
            "baseline": self.baseline,
            "note": self.note,
            "examples": self.count,
            "truncated": self.num_truncated,
            "skipped": [error.problem for error in self.skipped],
            "seconds": self.seconds,
            "labels": {
                label: {
                    **asdict(one),
                    **{name: getattr(one, name) for name in _RATES},
                    **({"threshold": thresholds[label]} if thresholds else {}),
                }
                for label, one in self.label_scores.items()
            },
            "confusion": matrix and {"labels": matrix.labels, "counts": matrix.counts.tolist()},
            "calibration": curve and asdict(curve),
            "swapped": self.swapped and asdict(self.swapped),
            "worst": [asdict(one) for one in self.listed_errors],
        }

    def page(self, title: str = "Evaluation", *, worst: int | None = None) -> Page:
        """A page with scores, charts and the worst errors."""
        given = (count for count in (worst, self.worst) if count is not None)
        sections = list(self._sections(next(given, PAGE_ERRORS)))
        return Page(title=title, note=self._summary(), sections=sections)

    def save(self, path: str | os.PathLike[str], title: str = "Evaluation") -> Path:
        """The page as one file."""
        return self.page(title).save(path)

    def to_records(self) -> list[dict[str, Any]]:
        """A row per score, the main one first, and one for the baseline."""
        return _make_records(self.model, {**self.scores, **self.baseline})

    def _repr_html_(self) -> str:
        shown = {**self.scores, **self.baseline}
        rows = [(metric_label(name), f"{value:.4f}") for name, value in shown.items()]
        note = " ".join(filter(None, (self._summary(), self.note)))
        return render_report(("", self.model or "score"), rows, self.page(), note=note)

    def _summary(self) -> str:
        truncated = f", {self.num_truncated:,} truncated" if self.num_truncated else ""
        skipped = f", {len(self.skipped):,} rows skipped" if self.skipped else ""
        rules = " Scored by the rules of CMRC." if self.chinese else ""
        return f"{self.count:,} examples{truncated}{skipped}, {self.seconds:.1f} s.{rules}"

    def _sections(self, worst: int) -> Iterator[Section]:
        facts = format_scores({**self.scores, **self.baseline})
        if self.swapped is not None:
            facts += _make_swap_facts(self.swapped)
        yield Section(title="Scores", note=self.note or "", parts=[Facts(facts)])
        charts = list(self._charts())
        if charts:
            wide = [part for part in charts if getattr(part, "wide", False)]
            narrow = [part for part in charts if part not in wide]
            title = "Confusion matrix and calibration" if len(charts) > 1 else "Calibration"
            yield Section(title=title, parts=[*wide, Grid(parts=narrow)])
        if self.label_scores:
            yield Section(title="Scores by label", parts=[self.label_table()])
        if self.errors and worst:
            yield self._error_section(worst)
        if self.skipped:
            rows = [[error.problem, error.fix] for error in self.skipped[:PAGE_ERRORS]]
            note = f"{len(self.skipped):,} rows could not be read."
            table = Table(columns=["problem", "fix"], rows=rows)
            yield Section(title="Skipped rows", note=note, parts=[table])

    def _charts(self) -> Iterator[PagePart]:
        matrix = self.confusion
        if matrix is not None and len(matrix.labels) <= MAX_MATRIX_LABELS:
            what = "words" if self.kind == "tag" else "examples"
            yield plot_confusion_counts(matrix.counts, matrix.labels, what=what)
        if self.calibration is not None:
            yield plot_calibration(self.calibration)

    def label_table(self) -> Table:
        """Precision, recall and F1 of each label as a table."""
        rows: list[list[Cell]] = [
            [label, *(round(getattr(one, name), 4) for name in _RATES), one.support, one.predicted]
            for label, one in self.label_scores.items()
        ]
        columns = ["label", *map(metric_label, _RATES), "support", "predicted"]
        if self.result.thresholds:
            columns.append("threshold")
            for row in rows:
                row.append(round(self.result.thresholds[str(row[0])], 4))
        return Table(columns=columns, rows=rows)

    def _error_section(self, count: int) -> Section:
        listed = [
            describe_example(self.result, one.number, one) for one in self.worst_errors(count)
        ]
        parts = build_example_parts(self.kind, listed, self.severity)
        shown = "" if len(self.errors) <= count else f"The worst {count:,} of "
        note = f"{shown}{len(self.errors):,} errors, ranked by {self.severity}."
        return Section(title="Worst errors", note=note, parts=parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class CorpusEvaluation(Result):
    """Scores of a model on a whole text, a parallel text or word questions."""

    kind: str  # language, masked, translate, summarize or words
    scores: Mapping[str, float]  # the main score first
    counts: Mapping[str, int]  # examples, tokens, …, and what was left out
    notes: Mapping[str, str]  # such as the signature of BLEU
    model: str | None = None
    charts: tuple[LineChart, ...] = field(default=(), repr=False)
    skipped: tuple[InputError, ...] = field(default=(), repr=False)  # rows that cannot be read
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "model": self.model,
            "kind": self.kind,
            "scores": dict(self.scores),
            "counts": dict(self.counts),
            **self.notes,
            "skipped": [error.problem for error in self.skipped],
            "seconds": self.seconds,
        }

    def rows(self) -> list[tuple[str, str | int]]:
        """The table of all scores, counts and notes."""
        return [
            *((metric_label(name), f"{value:.4f}") for name, value in self.scores.items()),
            *((metric_label(name), count) for name, count in self.counts.items()),
            *self.notes.items(),
            ("time", f"{self.seconds:.1f} s"),
        ]

    def to_records(self) -> list[dict[str, Any]]:
        """A row per score, the main one first."""
        return _make_records(self.model, self.scores)

    def _repr_html_(self) -> str:
        return render_report(("", self.model or "score"), self.rows(), self.page())

    def page(self, title: str = "Evaluation") -> Page:
        """The scores, the counts and the charts as a page."""
        counts = [
            Fact(label=metric_label(name), text=f"{count:,}", value=count)
            for name, count in self.counts.items()
        ]
        scores: list[PagePart] = [Facts(format_scores(self.scores)), *self.charts]
        notes = [f"{name} {text}" for name, text in self.notes.items()]
        return Page(
            title=title,
            note=" · ".join([*notes, f"{self.seconds:.1f} s"]),
            sections=[
                Section(title="Scores", parts=scores),
                Section(title="Data", parts=[Facts(counts)]),
            ],
        )

    def save(self, path: str | os.PathLike[str], title: str = "Evaluation") -> Path:
        """The page as one file."""
        return self.page(title).save(path)


def shorten(text: str, most: int) -> str:
    """Shorten a text to one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _make_records(model: str | None, scores: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"model": model, "metric": name, "score": value} for name, value in scores.items()]


def _make_swap_facts(swapped: SwapResult) -> list[Fact]:
    facts = [Fact(label="difference after swapping", text=f"{swapped.difference:.4f}")]
    if swapped.agreement is not None:
        text = format_percent(swapped.agreement, 2)
        facts.insert(0, Fact(label="agreement after swapping", text=text))
    return facts
