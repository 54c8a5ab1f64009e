"""The figures of `explain.layers`.  m positions, l layers, k predictions, n candidates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloze.plot.line_chart import LineChart, Series
from cloze.plot.page import Grid, PagePart
from cloze.plot.value_grid import ValueGrid
from cloze.plot.view import View

_MAX_LINES = 8
_MAX_FOCUS = 4  # positions with charts of their own


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """Predictions after each layer, with names in place of ids."""

    layers: Sequence[int]
    names: Sequence[str]  # m
    outputs: Sequence[Sequence[Sequence[str]]]  # l m k
    probabilities: Sequence[Sequence[Sequence[float]]]  # l m k
    candidates: Sequence[Sequence[str]]  # m n
    ranks: Sequence[Sequence[Sequence[int]]]  # l m n
    candidate_probabilities: Sequence[Sequence[Sequence[float]]]  # l m n

    @property
    def layer_names(self) -> list[str]:
        return [str(number) for number in self.layers]

    def to_dict(self) -> dict[str, Any]:
        """All values, by position."""
        return {
            "layers": list(self.layers),
            "positions": [
                {
                    "token": name,
                    "predictions": [
                        [
                            {"output": output, "probability": probability}
                            for output, probability in zip(
                                self.outputs[layer][at],
                                self.probabilities[layer][at],
                                strict=True,
                            )
                        ]
                        for layer in range(len(self.layers))
                    ],
                    "candidates": [
                        {
                            "output": candidate,
                            "ranks": [ranks[at][n] for ranks in self.ranks],
                            "probabilities": [p[at][n] for p in self.candidate_probabilities],
                        }
                        for n, candidate in enumerate(self.candidates[at])
                    ],
                }
                for at, name in enumerate(self.names)
            ],
        }


def draw_tokens(table: LayerTable, *, focus: Sequence[int], is_actual: bool, note: str) -> View:
    """Charts of the candidates at the positions of `focus`, and grids of all positions.

    With `is_actual` the first candidate of a position is the token that really follows.
    """
    figures: list[PagePart] = [
        Grid(parts=_draw_candidates(table, at, is_single=len(focus) == 1))
        for at in focus[:_MAX_FOCUS]
    ]
    if len(table.names) == 1:
        figures.append(_draw_best(table, 0))
        answer = table.candidates[0][0]
        title = f"Layers: {answer}"
    else:
        figures.append(_draw_predictions(table))
        if len(table.names) > len(focus):
            figures.append(_draw_ranks(table, is_actual=is_actual))
        title = "Layers"
    found = find_first_layer(table, focus[-1]) if focus else ""
    return View(
        title=title,
        figures=figures,
        data=table.to_dict(),
        note=" ".join(filter(None, (found, note))),
    )


def find_first_layer(table: LayerTable, at: int) -> str:
    """From which layer on the first candidate of a position is also the first prediction."""
    ranks = [layer[at][0] for layer in table.ranks]
    name = table.candidates[at][0]
    if ranks[-1] != 1:
        return f"“{name}” is number {ranks[-1]:,} after the last layer."
    first = len(ranks)
    while first and ranks[first - 1] == 1:
        first -= 1
    where = (
        "layer 0, the embeddings," if not table.layers[first] else f"layer {table.layers[first]}"
    )
    return f"“{name}” is the first prediction from {where} on."


def _draw_candidates(table: LayerTable, at: int, *, is_single: bool) -> list[PagePart]:
    where = "" if is_single else f" at {table.names[at]} {at + 1}"
    numbers = [float(number) for number in table.layers]

    def make(values: Sequence[Sequence[Sequence[float]]]) -> list[Series]:
        return [
            Series(name=name, x=numbers, y=[float(layer[at][n]) for layer in values])
            for n, name in enumerate(table.candidates[at])
        ]

    return [
        LineChart(
            title=f"Rank{where}",
            y_label="1 is the first prediction",
            x_label="layer",
            series=make(table.ranks),
            log=True,
            include=(1.0,),
        ),
        LineChart(
            title=f"Probability{where}",
            x_label="layer",
            series=make(table.candidate_probabilities),
            percent=True,
            include=(0.0,),
        ),
    ]


def _draw_best(table: LayerTable, at: int) -> ValueGrid:
    """The k best predictions of one position: a column for each layer."""
    count = len(table.outputs[0][at])
    return ValueGrid(
        title="Predictions after each layer",
        values=[[layer[at][n] for layer in table.probabilities] for n in range(count)],
        texts=[[layer[at][n] for layer in table.outputs] for n in range(count)],
        rows=[str(n + 1) for n in range(count)],
        columns=table.layer_names,
        row_title="rank",
        column_title="layer",
        percent=True,
        value_title="probability",
    )


def _draw_predictions(table: LayerTable) -> ValueGrid:
    """The best prediction at each position after each layer."""
    span = range(len(table.layers))
    positions = range(len(table.names))
    return ValueGrid(
        title="Best prediction after each layer",
        values=[[table.probabilities[layer][at][0] for layer in span] for at in positions],
        texts=[[table.outputs[layer][at][0] for layer in span] for at in positions],
        rows=table.names,
        columns=table.layer_names,
        row_title="token",
        column_title="layer",
        percent=True,
        value_title="probability",
        details=[
            [
                list(zip(table.outputs[layer][at], table.probabilities[layer][at], strict=True))
                for layer in span
            ]
            for at in positions
        ],
        details_percent=True,
    )


def _draw_ranks(table: LayerTable, *, is_actual: bool) -> ValueGrid:
    """The rank of the first candidate of each position after each layer."""
    span = range(len(table.layers))
    positions = range(len(table.names))
    ranks = [[table.ranks[layer][at][0] for layer in span] for at in positions]
    worst = max(max(row) for row in ranks)
    return ValueGrid(
        title="Rank of the actual token" if is_actual else "Rank of the final prediction",
        values=ranks,
        shades=[[1 - math.log(rank) / math.log(max(worst, 2)) for rank in row] for row in ranks],
        rows=[candidates[0] for candidates in table.candidates],
        columns=table.layer_names,
        row_title="output",
        column_title="layer",
        value_title="rank",
        note="1 is the first prediction; darker cells are better ranks.",
        details=[
            [[("probability", table.candidate_probabilities[layer][at][0])] for layer in span]
            for at in positions
        ],
        details_percent=True,
    )


def draw_classes(
    layers: Sequence[int],
    labels: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    is_probability: bool,
    note: str,
) -> View:
    """The values of labels (l n) as lines, and as a heatmap if there are many."""
    what = "Probability" if is_probability else "Score"
    order = sorted(range(len(labels)), key=lambda n: -values[-1][n])
    numbers = [float(layer) for layer in layers]
    figures: list[PagePart] = [
        LineChart(
            title=f"{what} of each label" if len(labels) > 1 else what,
            x_label="layer",
            series=[
                Series(name=labels[n], x=numbers, y=[row[n] for row in values])
                for n in order[:_MAX_LINES]
            ],
            percent=is_probability,
            include=(0.0, 1.0) if is_probability else (),
        ),
        ValueGrid(
            title=f"{what} after each layer",
            values=[[row[n] for row in values] for n in order],
            rows=[labels[n] for n in order],
            columns=[str(layer) for layer in layers],
            row_title="label",
            column_title="layer",
            percent=is_probability,
            signed=not is_probability,
            value_title=what.lower(),
        ),
    ]
    data = {"layers": list(layers), "labels": list(labels), "values": [list(row) for row in values]}
    title = f"Layers: {labels[order[0]]}"
    return View(title=title, figures=[Grid(parts=figures)], data=data, note=note)


def draw_answer_ends(
    layers: Sequence[int],
    tokens: Sequence[str],
    probabilities: Sequence[Sequence[Sequence[float]]],
    *,
    note: str,
) -> View:
    """The probability that an answer starts and ends at each token (2 m l)."""
    sides = ("start", "end")
    figures: list[PagePart] = [
        ValueGrid(
            title=f"{side.capitalize()} of the answer",
            values=values,
            rows=tokens,
            columns=[str(layer) for layer in layers],
            row_title="token",
            column_title="layer",
            percent=True,
            value_title="probability",
        )
        for side, values in zip(sides, probabilities, strict=True)
    ]
    data: dict[str, Any] = {"layers": list(layers), "tokens": list(tokens)}
    for side, values in zip(sides, probabilities, strict=True):
        data[side] = [list(row) for row in values]
    return View(title="Layers: answer", figures=[Grid(parts=figures)], data=data, note=note)
