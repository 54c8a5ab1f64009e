"""What came of asking a model about labelled examples: scores, pictures, the worst errors."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cloze.errors import InputError
from cloze.metrics.labels import (
    Calibration,
    Counts,
    compute_calibration,
    confusion_matrix,
    score_labels,
    unique_labels,
)
from cloze.metrics.measures import PLAIN
from cloze.metrics.names import called
from cloze.metrics.pictures import format_scores, plot_calibration, plot_confusion_matrix
from cloze.metrics.rates import LabelScores
from cloze.metrics.spans import score_spans
from cloze.plot.numbers import percent
from cloze.plot.page import Page, Section
from cloze.plot.parts import Cell, Fact, Facts, Grid, Part, Table
from cloze.tasks.judge import ScoredPredictions
from cloze.tasks.mistakes import SEVERITIES, PredictionError, confidences, find_errors, label_pairs

_DRAWN = 40  # labels that a matrix can show
_LISTED = 50  # errors on a page, if nobody says how many
_LONG = 300  # letters of a text there
_RATES = ("precision", "recall", "f1")


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How often each label (row) was taken for each (column)."""

    labels: tuple[str, ...]
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class SwapResult:
    """Pairs asked once more, with A and B exchanged."""

    agreement: float | None  # the share with the same label; None of numbers
    difference: float  # mean, of the probability of the label said first; or of the number
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation:
    """How a model did on labelled examples."""

    kind: str  # classify, number, similarity, tag, answer or choose
    result: ScoredPredictions
    labels: tuple[str, ...]
    scheme: str | None = None  # of tags
    chinese: bool = False  # answers were scored by CMRC's rules
    skipped: tuple[InputError, ...] = ()  # rows that were passed over
    seconds: float = 0.0
    swapped: SwapResult | None = None

    def __repr__(self) -> str:
        scores = {name: round(value, 4) for name, value in self.scores.items()}
        return f"Evaluation(kind={self.kind!r}, count={self.count}, scores={scores})"

    @property
    def scores(self) -> dict[str, float]:
        """By name, *the* score first."""
        return self.result.scores

    @property
    def score(self) -> float:
        return self.result.score

    @property
    def metric(self) -> str:
        """The name of *the* score."""
        return self.result.scorer.main

    @property
    def examples(self) -> Sequence[Any]:
        return self.result.examples

    @property
    def predictions(self) -> Sequence[Any]:
        """One for each example, in their order."""
        return self.result.predictions

    @property
    def count(self) -> int:
        return len(self.examples)

    @property
    def truncated(self) -> int:
        """Examples of which a length policy left something out."""
        return sum(
            bool(getattr(one, "untagged" if self.kind == "tag" else "truncated"))
            for one in self.predictions
        )

    @cached_property
    def errors(self) -> list[PredictionError]:
        """All errors, the worst first."""
        return find_errors(self.kind, self.result, scheme=self.scheme, chinese=self.chinese)

    def worst_errors(self, most: int = 10) -> list[PredictionError]:
        """The worst errors: see `mistakes`."""
        return self.errors[:most]

    @property
    def severity(self) -> str:
        """What makes an error worse than another."""
        return SEVERITIES["tag, plain" if self.scheme == PLAIN else self.kind]

    @cached_property
    def confusion(self) -> Confusion | None:
        """Of classes, and of the kinds of words that tags tell; None where there are no labels."""
        sides = label_pairs(self.kind, self.result, scheme=self.scheme)
        if sides is None or not sides[0]:
            return None
        known = self.labels if self.kind == "classify" else [*map(str, unique_labels(*sides))]
        return Confusion(labels=tuple(known), counts=confusion_matrix(*sides, known))

    @cached_property
    def label_scores(self) -> Mapping[str, LabelScores]:
        """Precision, recall and F1 of each label; of tags those of spans."""
        if self.kind == "tag" and self.scheme != PLAIN:
            return score_spans(self.result.gold, self.result.predicted, self.scheme).by_label
        sides = label_pairs(self.kind, self.result, scheme=self.scheme)
        if sides is None or not sides[0]:
            return {}
        return {str(label): one for label, one in score_labels(*sides).items()}

    @cached_property
    def calibration(self) -> Calibration | None:
        """Whether it is right as often as it is sure; None of numbers."""
        told = confidences(self.kind, self.result, chinese=self.chinese)
        return None if told is None or not told[0] else compute_calibration(*told)

    def to_dict(self) -> dict[str, Any]:
        """All but the predictions, as JSON could hold it."""
        matrix, curve = self.confusion, self.calibration
        return {
            "task": self.kind,
            "metric": self.metric,
            "score": self.score,
            "scores": self.scores,
            "examples": self.count,
            "truncated": self.truncated,
            "skipped": [error.problem for error in self.skipped],
            "seconds": self.seconds,
            "labels": {
                label: {
                    **asdict(one),
                    **{n: getattr(one, n) for n in ("precision", "recall", "f1")},
                }
                for label, one in self.label_scores.items()
            },
            "confusion": matrix and {"labels": matrix.labels, "counts": matrix.counts.tolist()},
            "calibration": curve and asdict(curve),
            "swapped": self.swapped and asdict(self.swapped),
        }

    def page(self, title: str = "Evaluation", *, worst: int = _LISTED) -> Page:
        """Scores, pictures and so many of the worst errors."""
        return Page(title=title, note=self._summary(), sections=list(self._sections(worst)))

    def save(
        self, path: str | os.PathLike[str], title: str = "Evaluation", *, worst: int = _LISTED
    ) -> Path:
        """The page as one file."""
        return self.page(title, worst=worst).save(path)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()

    def _summary(self) -> str:
        cut = f", {self.truncated:,} of them cut" if self.truncated else ""
        left = f", {len(self.skipped):,} rows passed over" if self.skipped else ""
        rules = " Scored by CMRC's rules." if self.chinese else ""
        return f"{self.count:,} examples{cut}{left}, in {self.seconds:.1f} s.{rules}"

    def _sections(self, worst: int) -> Iterator[Section]:
        facts = format_scores(self.scores)
        if self.swapped is not None:
            facts += _swap_facts(self.swapped)
        yield Section(title="Scores", parts=[Facts(facts)])
        pictures = list(self._pictures())
        if pictures:
            wide = [part for part in pictures if getattr(part, "wide", False)]
            narrow = [part for part in pictures if part not in wide]
            yield Section(title="Labels and sureness", parts=[*wide, Grid(parts=narrow)])
        if self.label_scores:
            yield Section(title="Label by label", parts=[self._rates_table()])
        if self.errors and worst:
            yield self._worst_section(worst)
        if self.skipped:
            rows = [[error.problem, error.fix] for error in self.skipped[:_LISTED]]
            note = f"{len(self.skipped):,} rows were passed over."
            table = Table(columns=["what was wrong", "what to do"], rows=rows)
            yield Section(title="Passed over", note=note, parts=[table])

    def _pictures(self) -> Iterator[Part]:
        sides = label_pairs(self.kind, self.result, scheme=self.scheme)
        matrix = self.confusion
        if sides is not None and matrix is not None and len(matrix.labels) <= _DRAWN:
            what = "words" if self.kind == "tag" else "examples"
            yield replace(
                plot_confusion_matrix(*sides, matrix.labels),
                note=f"{int(matrix.counts.sum()):,} {what}, {int(matrix.counts.trace()):,} of them "
                "right: the diagonal. The shade is the share of the row.",
            )
        if self.calibration is not None:
            yield plot_calibration(self.calibration)

    def _rates_table(self) -> Table:
        rows: list[list[Cell]] = [
            [label, *(round(getattr(one, name), 4) for name in _RATES), one.support, one.predicted]
            for label, one in self.label_scores.items()
        ]
        columns = ["label", *map(called, _RATES), "there are", "said"]
        return Table(columns=columns, rows=rows)

    def _worst_section(self, most: int) -> Section:
        rows: list[list[Cell]] = [
            [
                *(shorten(text, _LONG) for text in (one.text, one.gold, one.predicted)),
                round(one.severity, 4),
                Path(one.where).name,
            ]
            for one in self.worst_errors(most)
        ]
        columns = ["text", "right", "predicted", self.severity, "where"]
        shown = "" if len(self.errors) <= most else f"The worst {most:,} of "
        note = f"{shown}{len(self.errors):,} errors, by {self.severity}."
        return Section(title="Worst errors", note=note, parts=[Table(columns=columns, rows=rows)])


def shorten(text: str, most: int) -> str:
    """In one line of so many letters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _swap_facts(swapped: SwapResult) -> list[Fact]:
    same = swapped.agreement
    facts = [Fact(label="difference, exchanged", text=f"{swapped.difference:.4f}")]
    if same is not None:
        facts.insert(0, Fact(label="same answer, A and B exchanged", text=percent(same, 2)))
    return facts
