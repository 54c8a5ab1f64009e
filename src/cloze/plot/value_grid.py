"""Heatmaps that a pointer or the arrow keys explore, with a list of values for each cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from cloze.plot.heatmap import Heatmap
from cloze.plot.svg import Element, json_script

Detail: TypeAlias = tuple[str, float | None]  # a name and its value


@dataclass(frozen=True, kw_only=True)
class ValueGrid(Heatmap):
    """A heatmap whose cells show their values, and lists of others, when they are selected."""

    script: ClassVar[str] = "value_grid"
    value_title: str = ""  # what the values are, for the tooltip
    details: Sequence[Sequence[Sequence[Detail]]] | None = None  # of each cell, in order
    details_percent: bool = False  # values of the details are fractions

    def element(self) -> Element:
        """The grid as part of a page, with the data of its script."""
        shown = {
            "rows": list(self.rows),
            "columns": list(self.columns),
            "row_title": self.row_title,
            "column_title": self.column_title,
            "value_title": self.value_title,
            "percent": self.percent,
            "values": self.data["values"],
            "texts": self.texts and [list(row) for row in self.texts],
            "details": self.details
            and [
                [[(name, _shorten(value)) for name, value in cell] for cell in row]
                for row in self.details
            ],
            "details_percent": self.details_percent,
        }
        note = [Element("figcaption", self.note)] if self.note else []
        return Element(
            "figure",
            self.svg(),
            json_script(shown),
            *note,
            class_="wide" if self.wide else None,
            data_kind="value_grid",
        )


def _shorten(value: float | None) -> float | None:
    """Four digits are enough for a tooltip; `View.data` has all of them."""
    return None if value is None else float(f"{value:.4g}")
