"""What `compare` gives: models beside each other, with intervals by the bootstrap."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cloze.checkpoint.model import Model
from cloze.checkpoint.translator import Translator
from cloze.errors import InputError
from cloze.metrics.bootstrap import (
    Difference,
    Interval,
    Metric,
    bootstrap_difference,
    bootstrap_interval,
)
from cloze.metrics.names import called
from cloze.models.word2vec import WordVectors
from cloze.plot.page import Page, Section
from cloze.plot.parts import Cell, Table
from cloze.tasks.compare_words import WordVectorScores
from cloze.tasks.evaluate_translator import TranslatorScores
from cloze.tasks.evaluation import Evaluation
from cloze.tasks.sizes import count_parameters

Judged = Evaluation | TranslatorScores | WordVectorScores


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One model among several."""

    name: str
    parameters: int
    evaluation: Judged
    intervals: Mapping[str, Interval]  # of every measure
    difference: (
        Difference | None
    )  # its score less the first model's, on the same draws; None: it is it

    @property
    def too_long(self) -> int:
        """Sentences that a translator could not read."""
        return self.evaluation.too_long if isinstance(self.evaluation, TranslatorScores) else 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "parameters": self.parameters,
            "scores": {name: asdict(one) for name, one in self.intervals.items()},
            "against_first": self.difference and asdict(self.difference),
            **({"too_long": self.too_long} if self.too_long else {}),
            "seconds": self.evaluation.seconds,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Models beside each other, in the order they were given."""

    entries: tuple[Entry, ...]
    resamples: int
    skipped: tuple[InputError, ...] = field(default=(), repr=False)
    unknown: int = 0  # questions with a word that not all models know

    @property
    def metric(self) -> str:
        """The name of *the* score, by which models are held against the first."""
        return self.entries[0].evaluation.metric

    @property
    def count(self) -> int:
        """Examples."""
        return self.entries[0].evaluation.count

    @property
    def columns(self) -> tuple[str, ...]:
        measures = self.entries[0].intervals
        return ("model", "parameters", *measures, "against the first", "p, two-sided", "seconds")

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        """The table, a row to a model; None where the first would be held against itself."""
        for one in self.entries:
            gap = one.difference
            yield (
                one.name,
                one.parameters,
                *map(str, one.intervals.values()),
                None if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]",
                None if gap is None else float(f"{gap.p:.2g}"),  # 0.0 would say too much
                round(one.evaluation.seconds, 1),
            )

    @property
    def note(self) -> str:
        """How to read it."""
        left = f", {len(self.skipped):,} rows passed over" if self.skipped else ""
        if self.unknown:
            left += f", {self.unknown:,} with words that not every model knows left out"
        for one in self.entries:
            if one.too_long:
                left += f", {one.too_long:,} too long for {one.name} and counted as blank"
        return (
            f"{self.count:,} examples{left}. In brackets: where 95 % of the scores lie in "
            f"{self.resamples:,} draws of as many examples. Against the first: "
            f"{called(self.metric)} less that of the first model on the same draws; p, two-sided: "
            "twice the share of draws on the rarer side of no difference, the data themselves "
            "being one draw more."
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON could hold it."""
        return {
            "metric": self.metric,
            "examples": self.count,
            "skipped": [error.problem for error in self.skipped],
            **({"unknown": self.unknown} if self.unknown else {}),
            "resamples": self.resamples,
            "models": [one.to_dict() for one in self.entries],
        }

    def page(self, title: str = "Comparison") -> Page:
        """The table as a page."""
        scores = self.entries[0].intervals
        table = Table(
            columns=[called(name) if name in scores else name for name in self.columns],
            rows=[[name, *map(_stacked, cells)] for name, *cells in self.rows()],
        )
        return Page(title=title, note=self.note, sections=[Section(title="Models", parts=[table])])

    def save(self, path: str | os.PathLike[str], title: str = "Comparison") -> Path:
        """The page as one file."""
        return self.page(title).save(path)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def make_entry(
    name: str,
    model: Model | Translator | WordVectors,
    judged: Mapping[str, Judged],
    measures: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> Entry:
    """A row: the intervals of a model's measures, and its score less that of the first."""
    one, first = judged[name], next(iter(judged.values()))

    def draws() -> np.random.Generator:
        return np.random.default_rng(seed)  # the same for every model and measure

    against = None
    if one is not first:
        (ours, count), (theirs, _) = _drawn(one), _drawn(first)
        against = bootstrap_difference(ours, theirs, count, rng=draws(), resamples=resamples)
    return Entry(
        name=name,
        parameters=count_parameters(model),
        evaluation=one,
        intervals={
            measure: bootstrap_interval(*_drawn(one, measure), rng=draws(), resamples=resamples)
            for measure in measures
        },
        difference=against,
    )


def _drawn(one: Judged, measure: str | None = None) -> tuple[Metric, int]:
    """What the bootstrap draws from, and how many examples it has."""
    if isinstance(one, WordVectorScores):
        return one.sets[measure or one.metric]
    if isinstance(one, TranslatorScores):
        return one.score_subset, one.count
    return one.result.scorer.metric(measure), one.count


def _stacked(cell: Cell) -> Cell:
    """A number over its interval, so that many columns have room on a page."""
    return cell.replace(" [", "\n[") if isinstance(cell, str) and cell.endswith("]") else cell
