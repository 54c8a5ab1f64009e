"""What `evaluate` gives for models without labels, and which choices such a model takes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloze.errors import InputError
from cloze.metrics.names import called
from cloze.metrics.pictures import format_scores
from cloze.plot.chart import LineChart
from cloze.plot.page import Page, Section
from cloze.plot.parts import Fact, Facts, Part


@dataclass(frozen=True, kw_only=True)
class CorpusEvaluation:
    """How a model did."""

    kind: str  # language, masked, translate or words
    scores: Mapping[str, float]  # *the* score first
    counts: Mapping[str, int]  # what they are means over, and what was left out
    notes: Mapping[str, str]  # such as BLEU's signature
    charts: tuple[LineChart, ...] = field(default=(), repr=False)
    skipped: tuple[InputError, ...] = field(default=(), repr=False)  # rows that cannot be read
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON could hold it."""
        return {
            "kind": self.kind,
            "scores": dict(self.scores),
            "counts": dict(self.counts),
            **self.notes,
            "skipped": [error.problem for error in self.skipped],
            "seconds": self.seconds,
        }

    def rows(self) -> list[tuple[str, str | int]]:
        """The table: every score, count and note."""
        return [
            *((called(name), f"{value:.4f}") for name, value in self.scores.items()),
            *((called(name), count) for name, count in self.counts.items()),
            *self.notes.items(),
            ("time", f"{self.seconds:.1f} s"),
        ]

    def page(self, title: str = "Evaluation") -> Page:
        """The scores, the counts and the pictures as a page."""
        counts = [
            Fact(label=called(name), text=f"{count:,}", value=count)
            for name, count in self.counts.items()
        ]
        scores: list[Part] = [Facts(format_scores(self.scores)), *self.charts]
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


def check_options(options: Mapping[str, Any], *taken: str, of: object) -> dict[str, Any]:
    """What was chosen (neither None nor False), if a model of this kind takes it."""
    said = {
        name: one
        for name, one in options.items()
        if one is not None and one is not False and name != "progress"
    }
    for name in said:
        if name not in taken:
            what = of if isinstance(of, str) else f"a {type(of).__name__}"
            raise InputError(
                f"there is no {name} to choose for {what}",
                fix=f"choose {', '.join(taken)}, or leave it out" if taken else "leave it out",
            )
    return said
