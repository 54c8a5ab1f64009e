"""Metrics as a person reads them off a terminal: as a panel, or in one line."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cloze.metrics.names import METRICS

Row: TypeAlias = Mapping[str, Any]

WIDTH, HEIGHT = 64, 15  # that a panel needs
_WIDEST = 88
_SPARK = 28  # letters of the spark line
_BESIDE = 44  # columns that the panel needs beside it
_KEPT = 16 * _SPARK  # values that it is drawn from, however long the run
_BLOCKS, _ASCII = "▁▂▃▄▅▆▇█", "_.,-=*%#"
_PLAIN = str.maketrans({"·": "|", "\N{NO-BREAK SPACE}": " ", "–": "-", "…": "."})


_EXTENT = ("step", "tokens")
_TIME = ("seconds", "fraction", "left")
_TRAINING = (
    *_EXTENT,
    *("loss", "mlm_accuracy", "lm_accuracy", "nsp_accuracy", "sop_accuracy"),
    *("detection_accuracy", "accuracy"),
    *("lr", "tokens_per_second", "real_share"),
    *_TIME,
)
_HELD_OUT = (
    *("step", "mlm_loss", "perplexity", "mlm_accuracy", "lm_accuracy", "unigram_accuracy"),
    "teacher_accuracy",
    *("nsp_accuracy", "sop_accuracy", "detection_accuracy", "original_accuracy", "cosine_loss"),
    *("accuracy", "bleu", "score"),
)
# What a panel shows of both, each beside the other.
_ROWS = (
    *("loss", "mlm_loss", "nsp_loss", "sop_loss", "soft_loss", "cosine_loss"),
    *("mlm_accuracy", "lm_accuracy", "nsp_accuracy", "sop_accuracy", "detection_accuracy"),
    *("accuracy", "bleu", "score", "lr", "grad_norm", "tokens_per_second"),
)
# Where one of these is measured it is what chooses the model: "score" repeats it, and is no share.
_CHOOSING = {"bleu", "perplexity"}


class AsciiOnly:
    """A renderable for terminals and files that know no other letters."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._shown, options):
            plain = segment.text.translate(_PLAIN).encode("ascii", "replace").decode()
            yield Segment(plain, segment.style, segment.control)


class LossHistory:
    """All values of a run in bounded memory: when it is full, each two become their mean."""

    def __init__(self) -> None:
        self._means: list[float] = []
        self._open: list[float] = []  # not yet enough for a mean
        self._each = 1

    def add(self, value: float) -> None:
        self._open.append(value)
        if len(self._open) < self._each:
            return
        self._means.append(_mean(self._open))
        self._open = []
        if len(self._means) == _KEPT:
            self._means = _means(self._means, 2)
            self._each *= 2

    def spark(self, letters: int = _SPARK, levels: str = _BLOCKS) -> str:
        """The whole run in a few letters, from its lowest mean to its highest."""
        heights = _means(self._means, max(1, math.ceil(len(self._means) / letters)))
        low, high = min(heights, default=0.0), max(heights, default=0.0)
        scale = (len(levels) - 1) / (high - low) if high > low else 0.0
        return "".join(levels[round((height - low) * scale)] for height in heights)


class RunSummary:
    """What the rows have said so far."""

    def __init__(self) -> None:
        self.training: dict[str, float] = {}
        self.held_out: dict[str, float] = {}
        self.losses = LossHistory()
        self._began: tuple[float, float] | None = None  # seconds and fraction, in this sitting

    def add(self, row: Row) -> None:
        numbers = {key: number for key in row if (number := _number(row[key])) is not None}
        if row.get("kind") == "eval":
            if _CHOOSING & numbers.keys():
                numbers.pop("score", None)
            self.held_out = numbers
            return
        self.training |= numbers
        if math.isfinite(loss := numbers.get("loss", math.nan)):
            self.losses.add(loss)
        if {"seconds", "fraction"} <= numbers.keys():
            self._began = self._began or (numbers["seconds"], numbers["fraction"])
            self.training["left"] = self._left(numbers["seconds"], numbers["fraction"])

    def _left(self, seconds: float, fraction: float) -> float:
        """Until the budget is spent, at the pace of this sitting."""
        assert self._began is not None
        since, done = seconds - self._began[0], fraction - self._began[1]
        if done <= 0:  # the first row: all sittings together must do
            since, done = seconds, fraction
        return since / done * (1 - fraction) if done > 0 else math.nan


def format_training(seen: RunSummary) -> str:
    """The last row of training."""
    return _describe(seen.training, *_TRAINING)


def format_evaluation(seen: RunSummary) -> str:
    """The last evaluation."""
    return f"held out: {_describe(seen.held_out, *_HELD_OUT)}"


def render_panel(
    seen: RunSummary, *, title: str, width: int, ascii_only: bool = False
) -> RenderableType:
    """All that is known, in a frame."""
    width = min(width, _WIDEST)
    spark = seen.losses.spark(min(_SPARK, width - _BESIDE), _ASCII if ascii_only else _BLOCKS)
    return Panel(
        Group(_numbers(seen, spark), Text(), _progress(seen.training)),
        title=Text(title),
        title_align="left",
        subtitle=Text(_describe(seen.training, *_EXTENT)),
        subtitle_align="right",
        width=width,
        padding=(1, 2),
    )


def _numbers(seen: RunSummary, spark: str) -> Table:
    """Each number of training, the same on held-out text, and what to compare them with."""
    beside = {
        "loss": spark,
        "mlm_loss": _describe(seen.held_out, "perplexity"),
        "mlm_accuracy": _describe(seen.held_out, "unigram_accuracy", "teacher_accuracy"),
        "lm_accuracy": _describe(seen.held_out, "perplexity", "unigram_accuracy"),
        "detection_accuracy": _describe(seen.held_out, "original_accuracy"),
        "accuracy": _describe(seen.held_out, "perplexity"),
        "tokens_per_second": _describe(seen.training, "real_share"),
    }
    table = Table.grid(padding=(0, 3))
    table.add_column(style="dim", no_wrap=True, min_width=13)
    table.add_column(justify="right", style="bold", no_wrap=True, min_width=8)
    table.add_column(justify="right", style="cyan", no_wrap=True, min_width=8)
    table.add_column(no_wrap=True)
    if seen.held_out:
        table.add_row("", Text("training", "dim"), Text("held out", "dim"), "")
    for key in _ROWS:
        numbers = [known.get(key) for known in (seen.training, seen.held_out)]
        if numbers != [None, None]:
            measure = METRICS[key]
            cells = ["" if number is None else measure.format(number) for number in numbers]
            table.add_row(measure.label, *cells, Text(beside.get(key, "")))
    return table


def _progress(known: Mapping[str, float]) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    cells: list[RenderableType] = []
    if math.isfinite(fraction := known.get("fraction", math.nan)):
        table.add_column(ratio=1)
        cells.append(ProgressBar(total=1.0, completed=min(max(fraction, 0.0), 1.0)))
    table.add_column(no_wrap=True)
    table.add_row(*cells, Text(_describe(known, *_TIME)))
    return table


def _describe(known: Mapping[str, float], *keys: str) -> str:
    return " · ".join(METRICS[key].describe(known[key]) for key in keys if key in known)


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type] # a tensor of one number is one too
    except (TypeError, ValueError):
        return None


def _means(values: Sequence[float], of: int) -> list[float]:
    return [_mean(values[at : at + of]) for at in range(0, len(values), of)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
