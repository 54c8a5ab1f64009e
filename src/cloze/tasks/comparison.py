"""Results of `compare`: scores of several models, with bootstrap confidence intervals."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cloze.errors import InputError
from cloze.metrics.bootstrap import (
    Difference,
    Interval,
    Metric,
    bootstrap_difference,
    bootstrap_interval,
)
from cloze.metrics.names import METRICS, metric_label
from cloze.metrics.perplexity import LanguageModelScores
from cloze.plot.format import format_percent
from cloze.plot.interval_chart import IntervalChart, IntervalRow
from cloze.plot.notebook import render_report
from cloze.plot.page import Cell, Grid, Page, Section, Table
from cloze.results import Result

SCORES = ("perplexity", "word_perplexity", "bits_per_byte", "bits_per_character")


class Resampled(Protocol):
    """The scores of one model, which a bootstrap can resample."""

    @property
    def metric(self) -> str:
        """The name of the main score."""

    @property
    def count(self) -> int:
        """Number of examples."""

    @property
    def seconds(self) -> float: ...

    @property
    def bootstrap_metrics(self) -> Mapping[str, tuple[Metric, int]]:
        """By name: the metric of a resample, and the number of examples."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model of a comparison."""

    name: str
    parameters: int
    evaluation: Resampled
    intervals: Mapping[str, Interval]  # of every metric
    difference: Difference | None  # main score minus the first model's; None for the first

    @property
    def too_long(self) -> int:
        """Number of sentences that were too long for a translator."""
        return getattr(self.evaluation, "too_long", 0)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the model."""
        return {
            "model": self.name,
            "parameters": self.parameters,
            "scores": {name: asdict(one) for name, one in self.intervals.items()},
            "difference": self.difference and asdict(self.difference),
            **({"too_long": self.too_long} if self.too_long else {}),
            "seconds": self.evaluation.seconds,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Result):
    """The compared models, in the given order."""

    entries: tuple[Entry, ...]
    resamples: int
    skipped: tuple[InputError, ...] = field(default=(), repr=False)
    unknown: int = 0  # number of questions with a word that a model does not know

    @property
    def metric(self) -> str:
        """The name of the main score, whose difference to the first model is shown."""
        return self.entries[0].evaluation.metric

    @property
    def count(self) -> int:
        """Number of examples."""
        return self.entries[0].evaluation.count

    @property
    def baseline(self) -> dict[str, float]:
        """The score of a prediction that ignores the text, by its name; empty if there is none."""
        return getattr(self.entries[0].evaluation, "baseline", {})

    @property
    def columns(self) -> tuple[str, ...]:
        scores = self.entries[0].intervals
        return ("model", "parameters", *scores, "difference to the first", "p-value", "time (s)")

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """The rows of the table; the first model has no difference."""
        for one in self.entries:
            gap = one.difference
            yield (
                one.name,
                one.parameters,
                *map(str, one.intervals.values()),
                None if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]",
                None if gap is None else float(f"{gap.p:.2g}"),
                round(one.evaluation.seconds, 1),
            )

    @property
    def note(self) -> str:
        """How to read the table."""
        left = f", {len(self.skipped):,} rows skipped" if self.skipped else ""
        if self.unknown:
            left += f", {self.unknown:,} left out because a word is not in all vocabularies"
        for one in self.entries:
            if one.too_long:
                left += f", {one.too_long:,} too long for {one.name} and counted as empty"
        without = "; ".join(METRICS[name].describe(self.baseline[name]) for name in self.baseline)
        baseline = f" Without a model: {without}." if without else ""
        return (
            f"{self.count:,} examples{left}.{baseline} In brackets: 95 % bootstrap confidence "
            f"intervals from {self.resamples:,} resamples. Difference: {metric_label(self.metric)} "
            "minus that of the first model on the same resamples; p-value: two-sided bootstrap "
            "p-value."
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "metric": self.metric,
            "examples": self.count,
            "skipped": [error.problem for error in self.skipped],
            **({"unknown": self.unknown} if self.unknown else {}),
            "resamples": self.resamples,
            **({"baseline": self.baseline} if self.baseline else {}),
            "models": [one.to_dict() for one in self.entries],
        }

    def page(self, title: str = "Comparison") -> Page:
        """A chart of each score and the table as a page."""
        scores = self.entries[0].intervals
        table = Table(
            columns=[metric_label(name) if name in scores else name for name in self.columns],
            rows=[[name, *map(_stack_interval, cells)] for name, *cells in self.rows()],
        )
        return _make_page(title, self.note, table, [self._plot_score(name) for name in scores])

    def _plot_score(self, name: str) -> IntervalChart:
        """The values and confidence intervals of a score."""
        scores = [(one.name, one.intervals[name]) for one in self.entries]
        return IntervalChart(
            title=metric_label(name),
            percent=name in METRICS and METRICS[name].format is format_percent,
            rows=[
                IntervalRow(name=model, value=score.value, low=score.low, high=score.high)
                for model, score in scores
            ],
        )

    def save(self, path: str | os.PathLike[str], title: str = "Comparison") -> Path:
        """The page as one file."""
        return self.page(title).save(path)

    def to_records(self) -> list[dict[str, Any]]:
        """A row per model, with the bounds of each interval in columns of their own."""
        return [
            {
                "model": one.name,
                "parameters": one.parameters,
                **{
                    key: value
                    for name, score in one.intervals.items()
                    for key, value in _split_interval(name, score).items()
                },
                **self.baseline,
                **_split_interval("difference", one.difference),
                "p": one.difference and one.difference.p,
                "seconds": one.evaluation.seconds,
            }
            for one in self.entries
        ]

    def _repr_html_(self) -> str:
        scores = self.entries[0].intervals
        columns = [metric_label(name) if name in scores else name for name in self.columns]
        rows = ([_stack_interval(cell) for cell in row] for row in self.rows())
        return render_report(columns, rows, self.page(), note=self.note)


@dataclass(frozen=True, kw_only=True)
class LanguageEntry:
    """One language model of a comparison."""

    name: str
    kind: str
    parameters: int  # for an n-gram model, the number of n-grams
    vocabulary: int
    same_tokens: bool  # whether vocabulary and tokenization are those of the first model
    score: LanguageModelScores
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of the model."""
        return {
            "model": self.name,
            "kind": self.kind,
            "parameters": self.parameters,
            "vocabulary": self.vocabulary,
            "same_tokens": self.same_tokens,
            "scores": {name: getattr(self.score, name) for name in SCORES},
            "counts": asdict(self.score),
            "seconds": self.seconds,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class LanguageComparison(Result):
    """The compared language models, in the given order."""

    entries: tuple[LanguageEntry, ...]
    skipped: tuple[InputError, ...] = field(default=(), repr=False)

    columns = (
        *("model", "kind", "parameters", "vocabulary", "unknown"),
        *("perplexity", "word perplexity", "bits per byte", "time (s)"),
    )

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """The rows of the table; perplexity only for models with the tokens of the first."""
        for one in self.entries:
            yield (
                one.name,
                one.kind,
                one.parameters,
                one.vocabulary,
                format_percent(one.score.unknown / one.score.tokens, 2),
                f"{one.score.perplexity:.2f}" if one.same_tokens else None,
                f"{one.score.word_perplexity:.2f}",
                f"{one.score.bits_per_byte:.4f}",
                round(one.seconds, 1),
            )

    @property
    def note(self) -> str:
        """How to read the table."""
        first = self.entries[0].score
        return (
            f"{first.texts:,} lines, {first.words:,} words including ends of lines, "
            f"{first.bytes:,} bytes. Perplexity is per token, and only shown for models with the "
            "same tokens as the first one (vocabulary, numbers of tokens and unknown tokens). "
            "Word perplexity is per word, split at white space. Bits per byte can be compared "
            "between any two models, but an unknown word counts as one <unk>. An LSTM reads the "
            "lines as one text, other models read each line separately."
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "metric": "bits_per_byte",
            "skipped": [error.problem for error in self.skipped],
            "models": [one.to_dict() for one in self.entries],
        }

    def page(self, title: str = "Comparison") -> Page:
        """A chart of the bits per byte and the table as a page."""
        chart = IntervalChart(
            title="bits per byte",
            detail="lower is better",
            rows=[
                IntervalRow(name=one.name, value=one.score.bits_per_byte) for one in self.entries
            ],
        )
        table = Table(columns=self.columns, rows=list(self.rows()))
        return _make_page(title, self.note, table, [chart])

    def save(self, path: str | os.PathLike[str], title: str = "Comparison") -> Path:
        """The page as one file."""
        return self.page(title).save(path)

    def to_records(self) -> list[dict[str, Any]]:
        """A row per model; perplexity is comparable if `same_tokens`."""
        return [
            {
                "model": one.name,
                "kind": one.kind,
                "parameters": one.parameters,
                "vocabulary": one.vocabulary,
                "same_tokens": one.same_tokens,
                **{name: getattr(one.score, name) for name in SCORES},
                "seconds": one.seconds,
            }
            for one in self.entries
        ]

    def _repr_html_(self) -> str:
        return render_report(self.columns, self.rows(), self.page(), note=self.note)


def make_entry(
    name: str,
    parameters: int,
    evaluations: Mapping[str, Resampled],
    metrics: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> Entry:
    """Compute the confidence intervals of a model, and its difference to the first model."""
    one, first = evaluations[name], next(iter(evaluations.values()))

    def new_rng() -> np.random.Generator:
        return np.random.default_rng(seed)  # the same resamples for every model and metric

    found, difference = one.bootstrap_metrics, None
    if one is not first:
        ours, count = one.bootstrap_metrics[one.metric]
        theirs, _ = first.bootstrap_metrics[first.metric]
        difference = bootstrap_difference(ours, theirs, count, rng=new_rng(), resamples=resamples)
    return Entry(
        name=name,
        parameters=parameters,
        evaluation=one,
        intervals={
            name: bootstrap_interval(*found[name], rng=new_rng(), resamples=resamples)
            for name in metrics
        },
        difference=difference,
    )


def _split_interval(name: str, score: Interval | None) -> dict[str, float | None]:
    """The columns of an interval: name, name_low and name_high."""
    if score is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: score.value, f"{name}_low": score.low, f"{name}_high": score.high}


def _make_page(title: str, note: str, table: Table, charts: Sequence[IntervalChart]) -> Page:
    sections = [
        Section(title="Scores", parts=[Grid(parts=charts)]),
        Section(title="Models", parts=[table]),
    ]
    return Page(title=title, note=note, sections=sections)


def _stack_interval(cell: Cell) -> Cell:
    """Put the interval below the number, so that more columns fit on a page."""
    return cell.replace(" [", "\n[") if isinstance(cell, str) and cell.endswith("]") else cell
